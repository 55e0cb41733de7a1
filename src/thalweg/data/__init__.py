"""Data sets from disk, from packages or from a formula, all as one `Dataset` of arrays.

Importing this package is cheap: readers of tables, digits and downloads are imported on demand.
"""

from __future__ import annotations

from thalweg.data.ag_news import AgNews
from thalweg.data.array_folder import ArrayFolder
from thalweg.data.arrays import Arrays
from thalweg.data.augment import AUGMENTATIONS, Augment, Augmentation
from thalweg.data.base import Dataset, DataSource, Part, check_available
from thalweg.data.cifar10 import Cifar10
from thalweg.data.cifar100 import Cifar100
from thalweg.data.cinic10 import Cinic10
from thalweg.data.digits import Digits
from thalweg.data.elec2 import Elec2
from thalweg.data.fashion_mnist import FashionMnist
from thalweg.data.features import Scale
from thalweg.data.flights import Flights
from thalweg.data.gaussian_mixture import GaussianMixture
from thalweg.data.ham10000 import Ham10000
from thalweg.data.huggingface import HuggingFace
from thalweg.data.in_memory import InMemory
from thalweg.data.mnist import Mnist
from thalweg.data.mnist_writers import MnistWriters
from thalweg.data.noaa_weather import NoaaWeather
from thalweg.data.own import Rules
from thalweg.data.preprocessing import InputColumn, Preprocessing
from thalweg.data.river_stream import RiverStream
from thalweg.data.shakespeare import Shakespeare
from thalweg.data.svhn import Svhn
from thalweg.data.synthetic_logistic import SyntheticLogistic
from thalweg.data.table import Table
from thalweg.data.tiny_imagenet import TinyImagenet

SOURCES: dict[str, type[DataSource]] = {
    "digits": Digits,  # 8 x 8 digits, inside scikit-learn: the offline default
    "fashion-mnist": FashionMnist,  # 28 x 28 clothes, IDX files
    "mnist": Mnist,  # 28 x 28 digits, IDX files
    "mnist-writers": MnistWriters,  # the same digits, one client per writer
    "cifar10": Cifar10,  # 32 x 32 photographs, the official pickled batches
    "cifar100": Cifar100,  # 32 x 32 photographs, fine and coarse labels, official pickles
    "cinic10": Cinic10,  # 32 x 32 photographs, folders of PNG files
    "svhn": Svhn,  # 32 x 32 digits of house numbers, MATLAB files
    "tiny-imagenet": TinyImagenet,  # 64 x 64 photographs in 200 classes, folders of JPEG files
    "ham10000": Ham10000,  # 28 x 28 skin lesions, Kaggle's CSV files
    "shakespeare": Shakespeare,  # next character, one client per role of each play
    "ag-news": AgNews,  # the first 64 words of news articles, Parquet or CSV files
    "elec2": Elec2,  # electricity prices, one row per half hour
    "noaa-weather": NoaaWeather,  # fifty years of daily weather at one station: rain or no rain
    "flights": Flights,  # a year of flights, late or on time; one client per carrier
    "synthetic-logistic": SyntheticLogistic,  # one logistic concept per client
    "gaussian-mixture": GaussianMixture,  # Gaussian classes that move over time
    "arrays": Arrays,  # user data in an .npz file
    "array-folder": ArrayFolder,  # user data in a folder of .npy files, memory-mapped
    "table": Table,  # user data in a .parquet or .csv file
    "huggingface": HuggingFace,  # a data set of the Hugging Face Hub, its cache or a folder
    "river": RiverStream,  # a generator or a data set of River
    "in-memory": InMemory,  # a `Dataset` passed from Python
}

__all__ = [
    "AUGMENTATIONS",
    "SOURCES",
    "AgNews",
    "ArrayFolder",
    "Arrays",
    "Augment",
    "Augmentation",
    "Cifar10",
    "Cifar100",
    "Cinic10",
    "DataSource",
    "Dataset",
    "Digits",
    "Elec2",
    "FashionMnist",
    "Flights",
    "GaussianMixture",
    "Ham10000",
    "HuggingFace",
    "InMemory",
    "InputColumn",
    "Mnist",
    "MnistWriters",
    "NoaaWeather",
    "Part",
    "Preprocessing",
    "RiverStream",
    "Rules",
    "Scale",
    "Shakespeare",
    "Svhn",
    "SyntheticLogistic",
    "Table",
    "TinyImagenet",
    "check_available",
]
