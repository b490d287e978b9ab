"""What a machine attains: products, memory, launches and links, by one method on processors and accelerators."""
