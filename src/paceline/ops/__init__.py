"""Operations: one small protocol, and the backends that carry it out (NumPy reference, native CPU)."""
