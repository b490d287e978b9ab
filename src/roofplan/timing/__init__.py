"""Operations x machine x fit -> seconds and watts: rates, kernels, network, power, and figures with intervals."""
