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
import numpy as np
from keras import layers, ops

import keras_attn
from recipes.tasks.corpora import bicycles, forecast_errors
from recipes.tasks.pictures import forecast_week
from recipes.tasks.task import Task

HOURS, UNITS, TEST = 24, 64, 1440


def da_rnn(number: int) -> keras.Model:
    """Driving series `(B, T, n)` and the past `(B, T - 1, 1)` -> the next value, alpha `(B, T, n)`, beta `(B, T)`."""
    series, past = keras.Input((HOURS, number)), keras.Input((HOURS - 1, 1))
    encoder = keras_attn.InputAttentionEncoder(layers.LSTMCell(UNITS), keras_attn.BahdanauAttention(HOURS))
    values, alpha = encoder(series)
    decoder = keras_attn.AttentionDecoder(
        layers.LSTMCell(UNITS), keras_attn.BahdanauAttention(UNITS), cell_input=layers.Dense(1)
    )
    outputs, contexts, beta = decoder(past, values)
    last = ops.concatenate([outputs[:, -1], contexts[:, -1]], axis=-1)  # [d ; c], eq. 22
    return keras.Model([series, past], [layers.Dense(1)(layers.Dense(UNITS)(last)), alpha, beta[:, -1]])


def main(argv=None) -> None:
    task = Task("forecasting", __doc__, argv, epochs=15)
    train, test, names, (mean, deviation) = bicycles(HOURS, TEST, task.items)
    model = da_rnn(len(names))
    task.fit(model, *train, learning_rate=3e-3, batch_size=64, loss="mean_squared_error")
    forecast, alpha, _ = model.predict(test[0], verbose=0)
    forecast, bikes = (one * deviation + mean for one in (forecast[:, 0], np.concatenate([train[1], test[1]])))
    task.scores |= forecast_errors(forecast, bikes)
    week = slice(168)
    forecast_week(forecast[week], bikes[-TEST:][week], alpha[week, -1], names, task.picture)
    measured = f"The next hour's rents, in bicycles, of the last {TEST:,} hours of 2011, from the {HOURS} hours before."
    task.finish("Bikeshare, hourly", measured)


if __name__ == "__main__":
    main()
