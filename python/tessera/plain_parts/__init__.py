"""The parts of plain models (plain_model.py), in plain PyTorch."""
