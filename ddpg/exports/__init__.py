"""Export a trained policy to files: NumPy (run by this package without TensorFlow), SavedModel, TFLite, ONNX, C."""
