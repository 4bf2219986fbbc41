"""Small programs of PyTorch's libraries, with random weights.

test_libraries.py and `python -m bench doors` run them.
Each function returns a callable or module, and a list of calls: tuples of arguments.
The packages are imported inside, so that a missing one skips its own program only.
"""

import torch


def einops_layers():
    from einops.layers.torch import EinMix, Rearrange, Reduce

    model = torch.nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4),
        EinMix("b n d -> b n e", weight_shape="d e", bias_shape="e", d=48, e=8),
        Reduce("b n e -> b e", "max"),
    )
    return model, [(torch.randn(b, 3, 8, 8),) for b in (2, 3, 5, 2)]


def einops_functions():
    import einops

    def attention(x, w):
        heads = einops.rearrange(x, "b (h k) d -> b h k d", h=4)
        means = einops.reduce(heads, "b h k d -> b h d", "mean")
        mixed = einops.einsum(means, w, "b h d, d e -> b h e")
        packed, shapes = einops.pack([mixed, mixed[:, 0]], "b * d")
        first, second = einops.unpack(packed, shapes, "b * d")
        return einops.repeat(first, "b h d -> b h r d", r=2), second

    return attention, [(torch.randn(b, 8, 6), torch.randn(6, 7)) for b in (2, 3, 5, 2)]


def kornia_filters():
    import kornia

    def edges(x):
        x = kornia.filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0))
        x = kornia.geometry.rotate(x, torch.full((x.shape[0],), 30.0))
        return kornia.filters.sobel(x), kornia.color.rgb_to_hsv(x), kornia.enhance.equalize(x)

    return edges, [(torch.rand(2, 3, 16, 16),) for _ in range(2)]


def smp_unet():
    import segmentation_models_pytorch as smp

    return smp.Unet("resnet18", encoder_weights=None, classes=2).eval(), [(torch.randn(1, 3, 64, 64),)] * 2


def smp_segformer():
    import segmentation_models_pytorch as smp

    model = smp.Segformer("mit_b0", encoder_weights=None, classes=2).eval()
    return model, [(torch.randn(1, 3, 64, 64),)] * 2


def timm_vit():
    import timm

    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, num_classes=5
    ).eval()
    return model, [(torch.randn(2, 3, 32, 32),)] * 2


def _graphs(sizes):
    return [(torch.randn(n, 8), torch.randint(0, n, (2, 3 * n))) for n in sizes]


def pyg_sage():
    from torch_geometric.nn import GraphSAGE

    return GraphSAGE(8, 16, 2, 4), _graphs((20, 30, 25, 41))


def pyg_gin():
    from torch_geometric.nn import GIN

    return GIN(8, 16, 2, 4, norm="layer").eval(), _graphs((20, 30, 25, 41))


def gpytorch_exact():
    import gpytorch

    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def covariance(x, y):
        return kernel(x, y).to_dense() @ y

    return covariance, [(torch.randn(12, 2), torch.randn(9, 2)) for _ in range(2)]


class _Flow(torch.nn.Module):
    """The right-hand side of an ordinary differential equation."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))

    def forward(self, t, y):
        return self.net(y**3)


def ode_right_hand_side():
    return _Flow(), [(torch.tensor(0.1 * k), torch.randn(4, 2)) for k in range(3)]


def diffusers_unet():
    import diffusers

    model = diffusers.UNet2DConditionModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        layers_per_block=1,
        block_out_channels=(16, 32),
        norm_num_groups=8,
        cross_attention_dim=16,
        attention_head_dim=8,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    ).eval()
    calls = [(torch.randn(1, 4, 16, 16), torch.tensor(t), torch.randn(1, 7, 16)) for t in (1, 500, 999)]
    return model, calls


def diffusers_flux():
    """A transformer of three double and two single blocks."""
    import diffusers

    model = diffusers.FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=3,
        num_single_layers=2,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    ).eval()

    def call(side, words):
        ids = torch.stack(
            torch.meshgrid(torch.arange(1), torch.arange(side), torch.arange(side), indexing="ij"), -1
        )
        return (
            torch.randn(1, side * side, 4),
            torch.randn(1, words, 32),
            torch.randn(1, 32),
            torch.rand(1),
            ids.reshape(-1, 3).float(),
            torch.zeros(words, 3),
        )

    return model, [call(4, 6), call(4, 6), call(6, 9), call(5, 7)]


# name: the program, how many graphs all of its calls take, and how many graph breaks.
PROGRAMS = {
    "einops, layers": (einops_layers, 2, 0),
    "einops, functions": (einops_functions, 2, 0),
    "kornia": (kornia_filters, 1, 0),
    "segmentation_models_pytorch, Unet": (smp_unet, 1, 0),
    "segmentation_models_pytorch, Segformer": (smp_segformer, 1, 0),
    "timm, ViT": (timm_vit, 1, 0),
    "torch_geometric, GraphSAGE": (pyg_sage, 2, 0),
    "torch_geometric, GIN": (pyg_gin, 2, 0),
    "gpytorch, kernel": (gpytorch_exact, 3, 2),  # torch.equal() of its two inputs
    "torchdiffeq, right-hand side": (ode_right_hand_side, 1, 0),
    "diffusers, UNet": (diffusers_unet, 1, 0),
    "diffusers, Flux": (diffusers_flux, 2, 0),
}
