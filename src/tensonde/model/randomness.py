"""Which ops draw random numbers, or may."""

RANDOM_OPS = frozenset(
    {
        "dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_dropout", "feature_alpha_dropout",
        "bernoulli", "bernoulli_", "rrelu", "multinomial", "gumbel_softmax", "rand", "rand_like", "randn", "randn_like", "randint",
        "randint_like", "randperm", "normal", "normal_", "uniform_", "exponential_", "multi_head_attention_forward",
        "scaled_dot_product_attention", "lstm", "gru", "rnn_tanh", "rnn_relu", "poisson",
    }
)  # fmt: skip
