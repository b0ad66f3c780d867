"""Steps as strategies: from a gradient to the next couplings. `choice.choose` picks one for a session.

`scaled`     the gradient divided by the averaged complete-data information, accelerated: needs no rate
`metric`     the same, divided by each row's own information: for exact averages, and wherever biases or weights of
             inputs are learned
`sampling`   for noisy averages: full steps first, then shrinking ones whose mean is the result
`sparsity`   towards couplings of which many are zero: an l1 penalty, or a given share of non-zero couplings
`plain`      the paper's gradient ascent, at a rate; one of the others decides when it ends
"""
