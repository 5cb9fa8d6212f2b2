"""A trained policy as files that act without this package: NumPy, SavedModel, TFLite, ONNX."""
