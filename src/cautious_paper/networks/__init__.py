"""The paper's two network architectures."""
