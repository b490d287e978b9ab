"""Fit the constants that laws need beyond data sheets; each records what it was fitted on.

``python -m roofplan.evidence.fits`` rewrites ``catalogue/measured/fit-*.toml``. Kernel rows determine the achievable rates;
end-to-end rows determine launches and the host's time per step. The fits use few parameters with a physical meaning,
medians instead of means, and no tables of shapes.
"""
