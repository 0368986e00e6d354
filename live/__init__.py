"""The page in which a trained model runs, and everything that it needs.

Promises: one HTML file that makes no request; its tokens, weights and arithmetic are those of the
model here. Knows nothing of runs, training or scripts.
"""
