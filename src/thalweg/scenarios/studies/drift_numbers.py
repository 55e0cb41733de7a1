"""Published test accuracies of FedDAA (Peng & Tang) in percent: mean ± spread over 5 runs."""

from __future__ import annotations

# Table 1: Fashion-MNIST, CIFAR-10, CIFAR-100.
TABLE_1 = """
fedavg           42.53±.34 35.21±.51 27.15±.62
adaptive-fedavg  51.15±.43 42.44±.58 34.11±.48
flash            50.22±.40 43.58±.72 33.83±.55
fedrc            56.82±.61 52.88±.64 37.52±.69
feddrift         62.52±.57 58.18±.80 44.36±.75
feddaa           71.04±.42 66.02±.59 52.67±.50
oracle           72.26±.29 66.62±.47 52.96±.38
"""

# Table 2: concept and rotation; then FedAvg, Adaptive-FedAvg, Flash, FedRC, FedDrift, FedDAA,
# Oracle on CIFAR-10. The column of FedRC repeats that of FedAvg: it either collapsed to one model
# or was copied. Not a target.
TABLE_2_METHODS = ("fedavg", "adaptive-fedavg", "flash", "fedrc", "feddrift", "feddaa", "oracle")
TABLE_2 = """
1 0    9.97±.42 11.83±.77 10.26±.58  9.97±.36 36.72±.41 65.61±.29 69.20±.66
1 120  9.94±.73 11.94±.61 11.94±.14  9.94±.39 40.64±.44 69.02±.12 68.87±.52
1 240  7.67±.81 10.10±.24 10.10±.65  7.67±.33 69.46±.70 70.71±.46 70.15±.20
2 0   20.25±.48 14.14±.89 16.24±.57 20.25±.62 36.95±.30 65.50±.59 64.33±.76
2 120 18.80±.18 14.94±.63 13.56±.44 18.82±.53 44.36±.91 68.62±.27 70.32±.37
2 240 43.24±.39 24.75±.58 24.65±.36 43.24±.41 69.62±.69 70.75±.12 70.31±.43
3 0   19.81±.22 18.98±.73 19.20±.63 19.81±.21 27.87±.39 60.23±.25 58.96±.70
3 120 20.40±.60 20.80±.48 21.60±.66 20.40±.34 48.02±.81 70.55±.49 70.81±.57
3 240 37.03±.40 36.08±.58 37.09±.22 37.03±.27 70.93±.90 71.52±.16 71.45±.51
4 0   11.07±.37 15.21±.85 16.35±.30 11.07±.46 35.65±.62 64.41±.43 65.43±.75
4 120 10.67±.49 16.03±.91 17.56±.63 10.67±.18 41.13±.47 69.06±.24 67.95±.59
4 240 10.56±.33 25.71±.42 26.12±.51 10.56±.38 70.46±.54 71.21±.29 71.31±.61
"""

# Table 3: Fashion-MNIST, CIFAR-10, CIFAR-100. The spreads of the full method are not those of
# Table 1.
TABLE_3 = """
without-NCD   58.26±.42 56.93±.75 40.18±.37
without-RDLD  68.19±.83 62.46±.24 46.79±.89
without-DAA   65.28±.61 61.23±.46 45.14±.51
full          71.04±.35 66.02±.72 52.67±.22
"""

# Table 4: share of the clients in a round; Fashion-MNIST, CIFAR-10, CIFAR-100.
TABLE_4 = """
0.2 70.56±.42 65.60±.33 51.21±.85
0.5 71.04±.75 66.02±.56 52.67±.46
0.8 72.39±.37 67.42±.91 53.14±.54
1.0 72.86±.22 67.55±.64 53.51±.39
"""

# Table 5: concentration of the Dirichlet distribution; Fashion-MNIST, CIFAR-10, CIFAR-100.
TABLE_5 = """
0.5 67.94±.68 63.86±.47 50.65±.91
1.0 68.19±.32 64.57±.75 51.21±.38
2.0 69.56±.44 65.72±.59 52.06±.49
"""
