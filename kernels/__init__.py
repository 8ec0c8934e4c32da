"""What kernels are made of, in terms that no machine is named in: vector maths, sorts, orders, and which sums are products."""
