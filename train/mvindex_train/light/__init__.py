"""Make the light form of the packaged encoder: int8 weights for ONNX Runtime, with which nothing needs torch.

graph.py writes the graph, quantise.py chooses the integers, build.py is the command. Maintainers run it once for each
trained encoder; the runtime is mvindex/encoder/onnx_encoder.py.
"""
