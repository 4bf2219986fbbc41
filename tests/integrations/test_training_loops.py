"""Loops of Lightning, ignite, skorch, opacus, gpytorch and timm around a model compiled by name: eager's parameters."""

import logging

import pytest
import torch

import magneto
from tests.support.counts import assert_counts, counts


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))


def rows(n=32):
    torch.manual_seed(1)
    return torch.utils.data.TensorDataset(torch.randn(n, 8), torch.randint(0, 2, (n,)))


def loader(n=32):
    return torch.utils.data.DataLoader(rows(n), batch_size=8)


def by_name(f):
    return torch.compile(f, backend="magneto")


def assert_trains_alike(train):
    """train(compile) returns numbers and tensors; they are the same without and with magneto."""
    expected = train(lambda f: f)
    magneto.reset()
    with magneto.install():
        got = train(by_name)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def lightning_module(lightning, logs):
    class Classifier(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net()

        def forward(self, x):
            return self.net(x)

        def loss(self, batch, name):
            loss = torch.nn.functional.cross_entropy(self(batch[0]), batch[1])
            if logs:
                self.log(name, loss)
            return loss

        def training_step(self, batch, index):
            return self.loss(batch, "train")

        def validation_step(self, batch, index):
            return self.loss(batch, "valid")

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.01)

    return Classifier()


def fit(lightning, compile, logs, epochs):
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    model = lightning_module(lightning, logs)
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(compile(model), loader(), loader())
    return weights(model) + list(trainer.callback_metrics.values())


@pytest.mark.model
def test_lightning_trainer():
    lightning = pytest.importorskip("lightning")
    assert_trains_alike(lambda compile: fit(lightning, compile, logs=False, epochs=2))
    assert_counts(graphs=2, breaks=0)


@pytest.mark.model
def test_lightning_trainer_that_logs_settles():
    """self.log() is disabled for compilation by Lightning: one break in each step, and no graph for each epoch."""
    lightning = pytest.importorskip("lightning")
    assert_trains_alike(lambda compile: fit(lightning, compile, logs=True, epochs=5))
    assert set(counts().reasons) == {"disabled"}
    assert counts().graphs <= 8 and counts().misses <= 12
    assert_counts()


@pytest.mark.model
def test_lightning_fabric():
    lightning = pytest.importorskip("lightning")

    def train(compile):
        fabric = lightning.Fabric(accelerator="cpu", devices=1)
        model = net()
        compiled, optimizer = fabric.setup(compile(model), torch.optim.Adam(model.parameters(), lr=0.01))
        for x, y in loader():
            optimizer.zero_grad()
            fabric.backward(torch.nn.functional.cross_entropy(compiled(x), y))
            optimizer.step()
        return weights(model)

    assert_trains_alike(train)
    assert_counts(graphs=1, breaks=0)


@pytest.mark.model
def test_ignite():
    engine = pytest.importorskip("ignite.engine")
    metrics = pytest.importorskip("ignite.metrics")

    def train(compile):
        model, loss = net(), torch.nn.CrossEntropyLoss()
        compiled = compile(model)
        trainer = engine.create_supervised_trainer(
            compiled, torch.optim.SGD(model.parameters(), lr=0.1), loss
        )
        evaluator = engine.create_supervised_evaluator(
            compiled, metrics={"accuracy": metrics.Accuracy(), "loss": metrics.Loss(loss)}
        )
        trainer.add_event_handler(engine.Events.EPOCH_COMPLETED, lambda _: evaluator.run(loader()))
        trainer.run(loader(), max_epochs=2)
        return weights(model) + [evaluator.state.metrics[name] for name in ("accuracy", "loss")]

    assert_trains_alike(train)
    assert_counts(graphs=2, breaks=0)


@pytest.mark.model
def test_skorch():
    skorch = pytest.importorskip("skorch")

    def train(options):
        torch.manual_seed(0)
        x, y = rows(100).tensors
        net_ = skorch.NeuralNetRegressor(Regressor, max_epochs=3, lr=0.05, verbose=0, **options)
        net_.fit(x.numpy(), y.float().numpy()[:, None])
        return [torch.from_numpy(net_.predict(x.numpy())), *net_.history[:, "valid_loss"]]

    expected = train({})
    magneto.reset()
    with magneto.install():
        got = train(dict(compile=True, compile__backend="magneto"))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-4, atol=1e-5)
    assert_counts(breaks=0)
    assert counts().graphs <= 6  # module and criterion; training, evaluation, and another last batch


class Regressor(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)

    def forward(self, X):
        return self.net(X).tanh()


@pytest.mark.model
@pytest.mark.filterwarnings("ignore:Secure RNG", "ignore:Full backward hook")
def test_opacus():
    opacus = pytest.importorskip("opacus")

    def train(compile):
        model, data = net(), loader()
        engine = opacus.PrivacyEngine()
        model, optimizer, data = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=data,
            noise_multiplier=0.0,
            max_grad_norm=1.0,
            poisson_sampling=False,
        )
        compiled = compile(model)
        for _ in range(3):
            for x, y in data:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(compiled(x), y).backward()
                optimizer.step()
        return weights(model)

    assert_trains_alike(train)
    assert_counts()
    assert counts().graphs <= 6


@pytest.mark.model
def test_gpytorch():
    gpytorch = pytest.importorskip("gpytorch")

    def train(compile):
        torch.manual_seed(0)
        x = torch.linspace(0, 1, 20)
        y = torch.sin(6 * x)
        likelihood = gpytorch.likelihoods.GaussianLikelihood()
        model = exact_process(gpytorch, x, y, likelihood)
        bound = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        step = compile(lambda: -bound(model(x), y))
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = step()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses + weights(model)

    assert_trains_alike(train)
    assert "c_function" not in counts().reasons
    assert_counts()


def exact_process(gpytorch, x, y, likelihood):
    class Process(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    return Process()


@pytest.mark.model
def test_timm_training_as_its_scripts_do():
    """timm's train and validate scripts are not in its wheel: this is what they do with --torchcompile magneto."""
    timm = pytest.importorskip("timm")
    from timm import loss as losses
    from timm import optim, scheduler, utils

    def train(compile):
        torch.manual_seed(0)
        model = timm.create_model("resnet10t", num_classes=4)
        for layer in model.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.eval()  # small batches amplify rounding
        optimizer = optim.create_optimizer_v2(model, opt="lamb", lr=1e-3, weight_decay=0.02)
        average = utils.ModelEmaV3(model, decay=0.9)
        schedule, _ = scheduler.create_scheduler_v2(optimizer, sched="cosine", num_epochs=2)
        task, images = compile(model), torch.randn(4, 3, 32, 32)
        criterion, labels = losses.LabelSmoothingCrossEntropy(), torch.tensor([0, 1, 2, 3])
        for epoch in range(2):
            optimizer.zero_grad()
            loss = criterion(task(images), labels)
            loss.backward()
            utils.dispatch_clip_grad(model.parameters(), 1.0, mode="norm")
            optimizer.step()
            average.update(model)
            schedule.step(epoch + 1)
        with torch.inference_mode():
            accuracy = utils.accuracy(compile(average.module.eval())(images), labels, topk=(1, 2))
        return [loss.detach(), *accuracy, *weights(average.module)]

    assert_trains_alike(train)
    assert_counts(graphs=2, breaks=0)
