"""Forecasting: Qin et al. A Dual-Stage Attention-Based Recurrent Neural Network for Time Series Prediction. IJCAI 2017.

    pip install --no-deps ISLP
    python -m recipes.tasks.forecasting

The next value of a series from its past and from others that drive it. In the encoder an attention weighs the driving
series anew at each hour (eqs. 8 to 11); in the decoder an `AttentionDecoder` looks back over the encoder's states (eqs.
12 to 22). The series are the hourly numbers of rented bicycles in Washington in 2011 with the weather, from the package
`ISLP`, of which the file alone is read; the paper's are room temperatures and shares of the NASDAQ.

Expected: RMSE 33.6; RMSE of the hour before 69.7; RMSE of the same hour a week before 85.5; MAE 21.7; MAE of the hour
before 45.3; MAE of the same hour a week before 51.0. 0.06 M parameters, 1.5 minutes of one core (jax; report,
picture: `recipes/reports/bikeshare/forecasting.json`, `.png`).
"""

import keras
import matplotlib
import numpy as np
from keras import layers, ops

import keras_attn
from keras_attn.plots.plot_style import BLUE, GREY, STYLE, new_figure, plain_axes, save
from recipes.tasks.corpora import bicycles
from recipes.tasks.task import Task, optimizer

HOURS, UNITS, TEST = 24, 64, 1440


@keras.saving.register_keras_serializable(package="forecasting")
class InputAttention(layers.Layer):
    """An LSTM over driving series `(B, T, n)`, which an attention weighs at each step: states `(B, T, H)`, alpha."""

    def __init__(self, units: int, **kwargs):
        super().__init__(**kwargs)
        self.cell, self.attention = layers.LSTMCell(units), keras_attn.BahdanauAttention(HOURS)

    def build(self, shape):
        self.cell.build((None, shape[2]))
        self.attention.build((None, 2 * self.cell.units), (None, shape[2], shape[1]))

    def call(self, series):
        driving = ops.transpose(series, (0, 2, 1))  # (B, n, T): a series is a "word"
        keys = self.attention.keys(driving)

        def step(states, x):
            query = ops.concatenate(states, axis=-1)  # [h ; s] (B, 2 H), eq. 8
            _, alpha, _ = self.attention(query, driving, keys=keys)
            output, states = self.cell(alpha * x, states)
            return states, (output, alpha)

        first = self.cell.get_initial_state(batch_size=ops.shape(series)[0])
        _, (values, alphas) = keras_attn.scan(step, first, ops.transpose(series, (1, 0, 2)))
        return ops.transpose(values, (1, 0, 2)), ops.transpose(alphas, (1, 0, 2))

    def get_config(self):
        return {**super().get_config(), "units": self.cell.units}


def da_rnn(number: int) -> keras.Model:
    """Driving series `(B, T, n)` and the past `(B, T - 1, 1)` -> the next value, alpha `(B, T, n)`, beta `(B, T)`."""
    series, past = keras.Input((HOURS, number)), keras.Input((HOURS - 1, 1))
    values, alpha = InputAttention(UNITS)(series)
    decoder = keras_attn.AttentionDecoder(
        layers.LSTMCell(UNITS), keras_attn.BahdanauAttention(UNITS), cell_input=layers.Dense(1)
    )
    outputs, contexts, beta = decoder(past, values)
    last = ops.concatenate([outputs[:, -1], contexts[:, -1]], axis=-1)  # [d ; c], eq. 22
    return keras.Model([series, past], [layers.Dense(1)(layers.Dense(UNITS)(last)), alpha, beta[:, -1]])


def main(argv=None) -> None:
    task = Task("forecasting", __doc__, argv, epochs=15)
    windows, names, (mean, deviation) = bicycles(HOURS, TEST, task.items)
    train, test = (tuple(one[part] for one in windows) for part in (slice(0, -TEST), slice(-TEST, None)))
    attentive = da_rnn(len(names))
    model = keras.Model(attentive.inputs, attentive.outputs[0])
    model.compile(optimizer(task, -(-len(train[0]) // 64), 3e-3), "mean_squared_error")
    task.fit(model, list(train[:2]), train[2], batch_size=64)
    forecast, alpha, _ = attentive.predict([*test[:2]], verbose=0)
    truth = test[2] * deviation + mean
    rivals = {"": forecast[:, 0] * deviation + mean}
    rivals |= {" of the hour before": test[1][:, -1, 0] * deviation + mean}
    rivals |= {" of the same hour a week before": (windows[2][-TEST - 168 : -168]) * deviation + mean}
    scores = {f"RMSE{name}": np.sqrt(np.mean((one - truth) ** 2)) for name, one in rivals.items()}
    scores |= {f"MAE{name}": np.mean(np.abs(one - truth)) for name, one in rivals.items()}
    draw(task, truth[:168], rivals[""][:168], alpha[:168, -1], names)
    weights = dict(zip(names, alpha[:, -1].mean(0).round(4).tolist(), strict=True))
    measured = f"The next hour's rents, in bicycles, of the last {TEST:,} hours of 2011, from the {HOURS} hours before."
    alt = "A week of hourly rents and their forecasts above; below, the weight of each driving series at each hour"
    task.finish("Bikeshare, hourly", scores, measured, alt, mean_weights=weights)


def draw(task, truth, forecast, alpha, names) -> None:
    """A week: the series and its forecast, and the weights of the driving series."""
    with matplotlib.rc_context(STYLE):
        figure = new_figure(figsize=(5.0, 3.4), layout="constrained")
        upper, lower = figure.subplots(2, 1, sharex=True)
        upper.plot(truth, color=GREY, linewidth=1.6, label="rents")
        upper.plot(forecast, color=BLUE, linewidth=1.0, label="forecast")
        upper.legend(fontsize=8, frameon=False, ncols=2, loc="upper left")
        plain_axes(upper)
        lower.pcolormesh(np.arange(len(alpha) + 1), np.arange(len(names) + 1), alpha.T, cmap="gray", vmin=0)
        lower.set_yticks(np.arange(len(names)) + 0.5, names)
        lower.tick_params(length=0, labelsize=8)
        lower.set_xlabel("hours", fontsize=8.5)
    save(figure, task.out / "picture.png")


if __name__ == "__main__":
    main()
