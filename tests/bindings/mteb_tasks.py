"""Tasks of the package mteb on data that scikit-learn ships: photographs of 8 x 8 handwritten digits (UCI Optical Recognition)."""
from datasets import Dataset, DatasetDict
from mteb.abstasks import AbsTaskClassification, AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.abstasks.zeroshot_classification import AbsTaskZeroShotClassification
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def digits(begin, end, size=64):
    """Returns pictures and labels of the digits [begin, end), which are in a mixed order."""
    data = load_digits()
    pictures = [Image.fromarray((image * 255 / 16).astype("uint8")).convert("RGB").resize((size, size), Image.BILINEAR)
                for image in data.images[begin:end]]
    return pictures, data.target[begin:end].tolist()


def described(name, kind, category, modalities, score):
    return TaskMetadata(
        name=name, type=kind, category=category, modalities=modalities, main_score=score, description="Handwritten digits of scikit-learn.",
        reference="https://scikit-learn.org/stable/datasets/toy_dataset.html", dataset={"path": "sklearn/digits", "revision": "1"},
        eval_splits=["test"], eval_langs=["eng-Latn"], date=("1998-01-01", "1998-12-31"), dialect=[], domains=[], task_subtypes=[],
        license="cc-by-4.0", annotations_creators="derived", sample_creation="found", bibtex_citation="")


class DigitsLinearProbe(AbsTaskClassification):
    """MIEB's linear probe: logistic regression on 16 images of each class, five times."""

    metadata = described("DigitsLinearProbe", "ImageClassification", "i2c", ["image"], "accuracy")
    input_column_name = "image"
    # mteb's own probe stops after 100 iterations, before it has converged, so that rounding decides the last digits of its score.
    evaluator_model = LogisticRegression(max_iter=20000, tol=1e-7)
    samples_per_label = 16
    n_experiments = 5

    def load_data(self, num_proc=None, **kwargs):
        train, test = digits(0, 600), digits(600, 900)
        self.dataset = DatasetDict({name: Dataset.from_dict({"image": part[0], "label": part[1]}) for name, part in
                                    (("train", train), ("test", test))})
        self.data_loaded = True


class DigitsNearestNeighbors(DigitsLinearProbe):
    metadata = described("DigitsNearestNeighbors", "ImageClassification", "i2c", ["image"], "accuracy")
    evaluator_model = KNeighborsClassifier(5)


class DigitsZeroShot(AbsTaskZeroShotClassification):
    metadata = described("DigitsZeroShot", "ZeroShotClassification", "i2t", ["image", "text"], "accuracy")

    def load_data(self, num_proc=None, **kwargs):
        pictures, labels = digits(600, 900)
        self.dataset = DatasetDict({"test": Dataset.from_dict({"image": pictures, "label": labels})})
        self.data_loaded = True

    def get_candidate_labels(self):
        return [f"a picture of the digit {name}" for name in NAMES]


class DigitsComposed(AbsTaskRetrieval):
    """Composed retrieval, as in CIRR: a picture with a text finds pictures. The text names the digit of the picture that is right."""

    metadata = described("DigitsComposed", "Any2AnyRetrieval", "it2i", ["image", "text"], "ndcg_at_10")

    def load_data(self, num_proc=None, **kwargs):
        pictures, labels = digits(600, 640)
        others, of_others = digits(640, 700)
        wanted = [(label + 1) % 10 for label in labels]
        self.dataset = {"default": {"test": RetrievalSplitData(
            queries=Dataset.from_dict({"id": [f"q{i}" for i in range(len(pictures))], "image": pictures,
                                       "text": [f"the digit {NAMES[label]} instead" for label in wanted]}),
            corpus=Dataset.from_dict({"id": [f"d{i}" for i in range(len(others))], "image": others}),
            relevant_docs={f"q{i}": {f"d{j}": 1 for j, of in enumerate(of_others) if of == label} for i, label in enumerate(wanted)},
            top_ranked=None)}}
        self.data_loaded = True


TASKS = (DigitsLinearProbe, DigitsNearestNeighbors, DigitsZeroShot, DigitsComposed)
