"""ARPL+CS: ARPL with confusing samples from an adversarial generator."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam, Optimizer

from openauc.losses.prototype import confusion_loss, squared_distance
from openauc.methods.arpl import ARPL
from openauc.methods.base import torch_generator
from openauc.models.base import Backbone, branch
from openauc.models.gan import Discriminator, Generator


class ARPLCS(ARPL):
    r"""ARPL that also learns to be undecided about generated images, while a generator learns to make them look real.

    An epoch is a ``"confusing"`` pass followed by a ``"plain"`` one. A batch of the confusing pass takes three steps,
    with F the :func:`~openauc.losses.confusion_loss` and generated images in BatchNorm branch 1:

    1. discriminator: :math:`\mathrm{BCE}(D(x), 1) + \mathrm{BCE}(D(G(n)), 0)`;
    2. generator: :math:`\mathrm{BCE}(D(G(n)), 1) + \beta F(G(n))`;
    3. classifier: ARPL loss of x :math:`+ \beta F(G(n'))` with fresh noise n'.

    Parameters
    ----------
    beta, image_size
        Weight of the confusion loss; side of the training images, 32 or 64 as published.
    noise_dim, generator_width, discriminator_width
        Sizes of the two adversaries. Their default widths are proportional to the backbone's features, as published:
        512 and 128 channels for 128 features.
    temperature, weight, margin
        As in :class:`~openauc.methods.arpl.ARPL`.
    backbone, num_classes, rng, label_smoothing
        See :class:`~openauc.methods.base.Method`; the backbone needs two BatchNorm branches (``vgg32_abn``).

    Notes
    -----
    Generated images lie in [0, 1]. Where the recipe normalises the real images, the two have different ranges, as in
    the public "+" code.
    """

    backbone_name = "vgg32_abn"
    passes = ("confusing", "plain")
    find_unused_parameters = True

    def __init__(
        self,
        backbone: Backbone,
        num_classes: int,
        *,
        rng: np.random.Generator,
        beta: float = 0.1,
        image_size: int = 32,
        noise_dim: int = 100,
        generator_width: int | None = None,
        discriminator_width: int | None = None,
        temperature: float = 1.0,
        weight: float = 0.1,
        margin: float = 1.0,
        label_smoothing: float | None = None,
    ) -> None:
        options = {"temperature": temperature, "weight": weight, "margin": margin}
        super().__init__(backbone, num_classes, rng=rng, **options, label_smoothing=label_smoothing)
        with branch(backbone, 1):  # an error here, not after a long training, if there is no second branch
            pass
        self.beta = beta
        self.image_size = image_size
        self.noise_dim = noise_dim
        wide, narrow = generator_width or 4 * backbone.feature_dim, discriminator_width or backbone.feature_dim
        self.generator = Generator(image_size, noise_dim, width=wide, generator=torch_generator(rng))
        self.discriminator = Discriminator(width=narrow, generator=torch_generator(rng))
        self._adversaries: dict[str, Optimizer] = {
            name: Adam(self.get_submodule(name).parameters(), lr=2e-4, betas=(0.5, 0.999))
            for name in ("discriminator", "generator")
        }

    def trained_parameters(self) -> list[nn.Parameter]:
        """Backbone, points and radius; the two adversaries have optimisers of their own."""
        adversaries = {id(p) for part in (self.generator, self.discriminator) for p in part.parameters()}
        return [p for p in super().trained_parameters() if id(p) not in adversaries]

    def auxiliary_optimizers(self) -> dict[str, Optimizer]:
        """Adam, rate 2e-4 without schedule, for ``"discriminator"`` and ``"generator"``."""
        return dict(self._adversaries)

    def loss(self, x: Tensor, y: Tensor, confusing: Tensor | None = None) -> Tensor:
        """ARPL loss, plus ``beta`` times the confusion loss of generated images when there are any."""
        loss = super().loss(x, y)
        return loss if confusing is None else loss + self.beta * self.confusion(confusing)

    def confusion(self, images: Tensor) -> Tensor:
        """Confusion loss of generated images, seen through BatchNorm branch 1."""
        with branch(self.backbone, 1):
            features = self.backbone(images)
        return confusion_loss(squared_distance(features, self.points))

    def before_step(self, x: Tensor, phase: str) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """In the ``"confusing"`` pass, step the adversaries, then generate images for the classifier's step."""
        if phase == "plain":
            return (), {}
        if x.shape[-2:] != (self.image_size, self.image_size):
            found = f"images are {x.shape[-2]} x {x.shape[-1]} pixels but the generator draws {self.image_size}"
            raise ValueError(f"{found} x {self.image_size}; construct the method with image_size={x.shape[-1]}.")
        fakes = self._fakes(x)
        discriminator_loss = self._reality(x, 1.0) + self._reality(fakes.detach(), 0.0)
        self._adversary_step("discriminator", discriminator_loss)
        generator_loss = self._reality(fakes, 1.0) + self.beta * self.confusion(fakes)
        self._adversary_step("generator", generator_loss)
        with torch.no_grad():
            confusing = self._fakes(x)
        losses = {"discriminator_loss": discriminator_loss.detach(), "generator_loss": generator_loss.detach()}
        return (confusing,), losses

    def _fakes(self, x: Tensor) -> Tensor:
        noise = self.rng.standard_normal((len(x), self.noise_dim), dtype=np.float32)
        images: Tensor = self.generator(torch.as_tensor(noise, device=x.device))
        return images

    def _reality(self, images: Tensor, wanted: float) -> Tensor:
        """Binary cross-entropy of the discriminator on images that it should call real (1) or not (0)."""
        verdict = self.discriminator(images)
        return F.binary_cross_entropy_with_logits(verdict, torch.full_like(verdict, wanted))

    def _adversary_step(self, name: str, loss: Tensor) -> None:
        """Step one adversary; gradients of other parameters stay as they are."""
        parameters = list(self.get_submodule(name).parameters())
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            if dist.is_available() and dist.is_initialized():  # the classifier's wrapper does not average these
                dist.all_reduce(gradient)
                gradient /= dist.get_world_size()
            parameter.grad = gradient
        self._adversaries[name].step()
        self._adversaries[name].zero_grad()


METHOD = ARPLCS
