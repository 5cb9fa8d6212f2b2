"""Add finished runs to the policy zoo, and write the page that lists its entries."""
