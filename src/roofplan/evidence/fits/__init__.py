"""Fit the constants that laws need beside data sheets; each says on what it was fitted.

``python -m roofplan.evidence.fits`` rewrites ``catalogue/measured/fit-*.toml``. Kernel rows anchor the achievable rates;
end-to-end rows anchor launches and the host's time per step. Few parameters with a physical meaning, medians instead
of means, no table of shapes.
"""
