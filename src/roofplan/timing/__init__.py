"""Operations x machine x fit -> seconds and watts: rates, kernels, the network, power, and figures with their intervals."""
