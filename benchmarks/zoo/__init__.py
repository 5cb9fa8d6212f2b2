"""From finished runs to entries of the zoo, and the page that lists them."""
