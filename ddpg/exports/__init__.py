"""A trained policy as files: NumPy (for this package, without TensorFlow), SavedModel, TFLite, ONNX, C."""
