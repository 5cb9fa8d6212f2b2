"""A compiler from TensorFlow graphs to machine code: graph, IR, schedule, memory plan, LLVM, threads."""
