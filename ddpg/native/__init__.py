"""An update as machine code of its own: read off the graph, scheduled, fused, compiled by LLVM."""
