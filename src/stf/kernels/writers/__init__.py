"""Writers of kernels: the text of a loop nest in each language."""
