"""Matrix multiplication: work, traffic, padding, and mixtures of experts."""

from __future__ import annotations

from roofplan.laws import Number, larger, smaller, up


def work(rows: Number, inner: Number, columns: Number) -> Number:
    """Return the operations of a matrix product: 2 m k n, a multiplication and an addition each.

    Parameters
    ----------
    rows : tokens m [1].
    inner : summed dimension k [1].
    columns : outputs n [1].

    Returns
    -------
    Work [FLOP].

    Notes
    -----
    Domain: dense. Source: definition; Kaplan et al. 2020 (arXiv 2001.08361) table 1 uses the same count.

    Examples
    --------
    >>> work(1, 8192, 8192)
    134217728
    """
    return 2 * rows * inner * columns


def traffic(rows: Number, inner: Number, columns: Number, weight: Number, activation: Number) -> Number:
    """Return the traffic of a matrix product: weights k n w, inputs m k a, outputs m n a.

    Parameters
    ----------
    rows : tokens m [1].
    inner : summed dimension k [1].
    columns : outputs n [1].
    weight : bytes per weight, scales included [B].
    activation : bytes per activation [B].

    Returns
    -------
    Traffic [B].

    Notes
    -----
    Domain: each operand is read or written once, so a lower bound. Source: [roofline] count.

    Examples
    --------
    >>> traffic(1, 8192, 8192, 2.0, 2.0)
    134250496.0
    """
    return inner * columns * weight + rows * (inner + columns) * activation


def padded(rows: Number, tile: Number) -> Number:
    """Return the rows rounded up to the kernel's tile: ceil(m / tile) tile.

    Parameters
    ----------
    rows : tokens m [1].
    tile : rows per tile [1].

    Returns
    -------
    Rows computed [1].

    Notes
    -----
    Domain: tile at least 1. Source: NVIDIA, "Matrix multiplication background user's guide", tile quantization.

    Examples
    --------
    >>> padded(17.0, 16.0)
    32.0
    """
    return up(rows / tile) * tile


def dequantisation_work(weights: Number, rows: Number, tile: Number, operations: Number) -> Number:
    """Return the vector work of unpacking weights once per row tile after the first: w o (ceil(m / tile) - 1).

    Parameters
    ----------
    weights : entries w of the matrix [1].
    rows : tokens m [1].
    tile : rows served by one unpacking [1].
    operations : operations o per entry [FLOP].

    Returns
    -------
    Work [FLOP].

    Notes
    -----
    Domain: weight-only formats; the first unpacking overlaps with reading the weights. Source: tile quantization
    (see `padded`); AWQ and Marlin kernels unpack in registers once per output tile (Frantar et al. 2024, arXiv 2408.11743).

    Examples
    --------
    >>> dequantisation_work(1000.0, 1024.0, 128.0, 2.0)
    14000.0
    """
    return weights * operations * (up(rows / tile) - 1)


def unpacking_traffic(weights: Number, stored: Number, unpacked: Number) -> Number:
    """Return the traffic of unpacking weights to memory before a matrix product: w (s + u).

    Parameters
    ----------
    weights : entries w of the matrix [1].
    stored : bytes of a stored entry s [B].
    unpacked : bytes of an unpacked entry u [B].

    Returns
    -------
    Traffic [B].

    Notes
    -----
    Domain: once per product, whatever the number of rows. Source: count. llama.cpp's pull request 7860 shows it: on an RTX 4090
    512 tokens of an 8B model in q4_0 take 68.9 ms and 1,024 take 118.3 ms, so 19.5 ms do not depend on the number of tokens.

    Examples
    --------
    >>> round(unpacking_traffic(6.98e9, 4.5 / 8.0, 2.0) / 1008e9 * 1e3, 1)
    17.7
    """
    return weights * (stored + unpacked)


def rescaling_work(rows: Number, weights: Number, block: Number, operations: Number) -> Number:
    """Return the vector work of rescaling the partial sums of blocks: m w / b sums, o operations each.

    Parameters
    ----------
    rows : tokens m [1].
    weights : entries w of the matrix [1].
    block : entries along the summed dimension that share a scale b [1].
    operations : operations o per partial sum [FLOP].

    Returns
    -------
    Work [FLOP].

    Notes
    -----
    Domain: integer products whose accumulators are converted and scaled per block on the vector units. Source: count. On an
    RTX 4090, with 660 TOPS in int8 and 82.6 TFLOPS in fp32, it takes three quarters of the products' own time at the peak.

    Examples
    --------
    >>> products, scales = 2 * 512 * 7e9 / 660e12, rescaling_work(512, 7e9, 32, 6) / 82.6e12
    >>> round(scales / products, 2)
    0.75
    """
    return rows * weights / block * operations


def conversion_traffic(elements: Number, each: Number) -> Number:
    """Return the traffic of converting a product's inputs and outputs between number formats: e c.

    Parameters
    ----------
    elements : inputs and outputs e of a product [1].
    each : bytes read and written per element c [B].

    Returns
    -------
    Traffic [B].

    Notes
    -----
    Domain: activations in another format than the product takes, converted by separate kernels. Source: count.

    Examples
    --------
    >>> conversion_traffic(512.0 * (4096 + 14336), 6.0)
    56623104.0
    """
    return elements * each


def power_limited_share(share: Number, energy: Number, reference: Number, most: Number) -> Number:
    """Return the share of peak that matrix products sustain at another power limit: share (e / e_0)^(1/3), at most `most`.

    Parameters
    ----------
    share : share of the peak sustained at the reference limit [1].
    energy : power limit over peak e [J/FLOP].
    reference : power limit over peak of the devices on which the share was measured e_0 [J/FLOP].
    most : largest share of a peak that any product reaches [1].

    Returns
    -------
    Share of the peak [1].

    Notes
    -----
    Domain: devices of one architecture and process, whose clocks drop until the power limit is met. Source: P = C V^2 f of CMOS
    (Chandrakasan, Sheng, Brodersen 1992, doi 10.1109/4.126534) with V proportional to f, so f grows with the cube root of P.
    The best products measured by ml-engineering agree: A100 at 400 and 300 W, 271 and 253 TFLOPS, 1.07 for 1.10; MI325X over
    MI300X, 1000 and 750 W, 1.17 for 1.10; GB200 over B200, 1200 and 1000 W, 1.04 for 1.06.

    Examples
    --------
    >>> round(power_limited_share(0.87, 300.0 / 312e12, 400.0 / 312e12, 0.97) * 312)  # 253 measured
    247
    """
    return smaller(share * (energy / reference) ** (1.0 / 3.0), most)


def experts_read(experts: Number, chosen: Number, tokens: Number) -> Number:
    """Return the expected number of distinct experts that a step reads: E (1 - (1 - k/E)^T).

    Parameters
    ----------
    experts : routed experts E [1].
    chosen : experts per token k [1].
    tokens : tokens of the step T [1].

    Returns
    -------
    Experts whose weights are read [1].

    Notes
    -----
    Domain: tokens choose independently and uniformly; skewed routing reads fewer. Source: expected occupancy of a
    random allocation; for 256 experts, top 8, the shares are 3, 22, 64 and 98% at 1, 8, 32 and 128 tokens.

    Examples
    --------
    >>> [round(100 * experts_read(256, 8, t) / 256) for t in (1, 8, 32, 128)]
    [3, 22, 64, 98]
    """
    return experts * (1 - (1 - chosen / experts) ** tokens)


def grouped_tile(rows: Number, smallest: Number, largest: Number) -> Number:
    """Return the row tile of a grouped product: the rows per expert, clipped to the tiles that kernels offer.

    Parameters
    ----------
    rows : mean rows per expert that has any [1].
    smallest : rows of the smallest tile [1].
    largest : rows of the largest tile [1].

    Returns
    -------
    Rows of a tile [1].

    Notes
    -----
    Domain: kernels tuned by size. Source: vLLM's and SGLang's fused MoE kernels choose 16 rows for few tokens and up to
    128 for many; this is a smooth rule between them.

    Examples
    --------
    >>> [grouped_tile(rows, 16.0, 128.0) for rows in (1.0, 40.0, 1000.0)]
    [16.0, 40.0, 128.0]
    """
    return smaller(larger(rows, smallest), largest)


def grouped_share(
    rows: Number, width: Number, ridge: Number, most: Number, half_rows: Number, half_width: Number
) -> Number:
    """Return the rate of a grouped product over that of a dense product: s / ((1 + r p / R) (1 + w / W)), at most one.

    Parameters
    ----------
    rows : rows of an expert R, padded to the tile [1].
    width : inner width of an expert W on one rank [1].
    ridge : peak in 16 bits over memory bandwidth p [FLOP/B].
    most : limit for many rows and large width s [1].
    half_rows : rows over the ridge point at which half of the limit is lost r [B/FLOP].
    half_width : width at which half of the limit is lost w [1].

    Returns
    -------
    Share of a dense product's rate [1].

    Notes
    -----
    Domain: gated experts in one grouped kernel, equal rows per expert. Below 64 rows a product is memory-bound and takes the share of 64.
    With few rows a product neither fills its last wave of tiles nor hides its start and end, and how many are few grows with what a
    device computes for each byte that it reads; a narrow one has a short inner dimension in its second half. Source: form fitted to
    published kernel tables (`evidence.fits.kernels`).

    Examples
    --------
    >>> [round(grouped_share(rows, 2048.0, 295.0, 1.25, 80.0 / 295.0, 380.0), 2) for rows in (64.0, 512.0, 4096.0)]
    [0.47, 0.91, 1.0]
    """
    lost = half_rows * ridge / larger(rows, LEAST_GROUPED_ROWS)
    return smaller(most / ((1 + lost) * (1 + half_width / width)), 1.0)


LEAST_GROUPED_ROWS = 64.0
"""Least rows per expert at which published grouped products are compute-bound, so that they show their rate [1]."""


def padded_expert_rows(visits: Number, read: Number, tile: Number) -> Number:
    """Return the rows that a grouped product computes: max(visits + read (tile - 1) / 2, read tile).

    Parameters
    ----------
    visits : token visits routed to this rank [1].
    read : experts that receive them [1].
    tile : rows per tile [1].

    Returns
    -------
    Rows computed [1].

    Notes
    -----
    Domain: each expert has visits / read rows on average, padded by (tile - 1) / 2 in expectation and to at least
    one tile; a tile of one row needs no padding. Source: tile quantization (see `padded`) applied to grouped products.

    Examples
    --------
    >>> padded_expert_rows(8192.0, 8.0, 65.0)
    8448.0
    >>> padded_expert_rows(8.0, 8.0, 1.0)
    8.0
    """
    return larger(visits + read * (tile - 1) / 2, read * tile)


def vector_work(work: Number, entries: Number, multiplying: Number, unpacking: Number) -> Number:
    """Return the operations whose time a matrix-vector kernel takes: W / 2 multiply-adds and the unpacking of each weight.

    Parameters
    ----------
    work : operations of the product W [FLOP].
    entries : weights read [1].
    multiplying : vector operations that take the time of one multiply-add, with what loads and converts its input [FLOP].
    unpacking : vector operations to unpack one stored weight [FLOP].

    Returns
    -------
    Work on the vector units [FLOP].

    Notes
    -----
    Domain: few rows; weights are unpacked once for all of them. Source: count over the kernel (llama.cpp's mul_mat_vec).

    Examples
    --------
    >>> vector_work(2e9, 1e9, 2.0, 4.0)
    6000000000.0
    """
    return work / 2.0 * multiplying + entries * unpacking


def dot_work(work: Number, instructions: Number, each: Number) -> Number:
    """Return the operations whose time a processor's dot products take: W / 2 multiply-adds of n / 32 instructions of o each.

    Parameters
    ----------
    work : operations of the product W [FLOP].
    instructions : vector instructions of a dot product per 32 stored weights n [1].
    each : operations of fused multiply-adds that take the time of one instruction o [FLOP].

    Returns
    -------
    Work at the rate of fused multiply-adds [FLOP].

    Notes
    -----
    Domain: each row of a product by itself, its weights unpacked again. Source: count over the kernel (llama.cpp's ggml_vec_dot).

    Examples
    --------
    >>> dot_work(2e9, 16.0, 12.8)
    6400000000.0
    """
    return work / 2.0 * instructions / 32.0 * each


def most_loaded_rank(experts: Number, ranks: Number, chosen: Number, tokens: Number) -> Number:
    """Return the load of the busiest rank over the mean, for uniform random routing.

    max/mean = 1 + sqrt(2 ln(R) (1 - k_r / R) / visits per rank), the expected maximum of R equal Gaussian loads.

    Parameters
    ----------
    experts : routed experts E [1].
    ranks : ranks R that share them [1].
    chosen : experts per token k [1].
    tokens : tokens of the step T [1].

    Returns
    -------
    Load of the busiest rank over the mean [1].

    Notes
    -----
    Domain: uniform routing, R >= 1; a trained router without balancing is worse. Capped at one rank taking all
    that it can. Source: extreme value of R normals, sqrt(2 ln R) (Cramer 1946), variance of a multinomial.

    Examples
    --------
    >>> round(float(most_loaded_rank(256.0, 8.0, 8.0, 128.0)), 2)
    1.17
    >>> float(most_loaded_rank(256.0, 1.0, 8.0, 128.0))
    1.0
    """
    import numpy as np

    visits = tokens * chosen / ranks
    spread = np.sqrt(2 * np.log(ranks) * (1 - 1 / ranks) / visits)
    return np.minimum(1 + spread, np.minimum(ranks, experts))
