"""An update as machine code of its own: read off the graph, scheduled, compiled by LLVM, products by BLAS."""
