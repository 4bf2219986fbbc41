"""The calls that random models are made of: text with holes, by kind.

A hole is a letter: t tensor, f floating-point tensor, m one with two or more dimensions, q one with three or more,
i int64 tensor, b bool tensor, u tensor whose shape broadcasts with that of the hole before, w the same for floating
point, s number, p small positive int, k small int, d a dimension of the tensor before, e another one, T dtype,
F floating-point dtype, n the number that the call got, B True or False.  Text is tried eagerly: what raises is not taken.
"""

POINTWISE = """
{t} + {u}; {t} - {u}; {t} * {u}; {f} / {w}; {t} + {s}; {s} - {t}; {t} * {s}; {s} / {f}; {t} // {s}; {t} % {s}; {f} ** 2; {f}.abs() ** 0.5
{t}.abs(); -{t}; {f}.exp(); {f}.sin(); {f}.cos(); {f}.tanh(); {f}.sigmoid(); {f}.relu(); {f}.sqrt(); {f}.rsqrt(); {f}.log(); {f}.log1p()
{f}.expm1(); {f}.erf(); {f}.floor(); {f}.ceil(); {f}.round(); {f}.trunc(); {f}.frac(); {f}.sign(); {t}.square(); {f}.reciprocal(); {f}.atan()
{t}.clamp({k}, 3); {f}.clamp(min={s}); {t}.clamp(max={s}); {f}.clamp({w}, 2 * {w}); torch.where({b}, {t}, {u}); torch.where({t} > {s}, {t}, {u})
torch.where({b}, {f}, {s}); torch.maximum({t}, {u}); torch.minimum({t}, {u}); torch.fmax({f}, {w}); torch.atan2({f}, {w}); torch.lerp({f}, {w}, 0.3)
torch.addcmul({f}, {w}, {w}, value={s}); torch.addcdiv({f}, {w}, {w} + 3); torch.add({t}, {u}, alpha={k}); torch.sub({t}, {u}, alpha={k})
torch.rsub({t}, {u}); F.gelu({f}); F.gelu({f}, approximate="tanh"); F.silu({f}); F.elu({f}); F.leaky_relu({f}, 0.1); F.softplus({f})
F.hardtanh({f}); F.hardswish({f}); F.hardsigmoid({f}); F.mish({f}); F.relu6({f}); F.logsigmoid({f}); F.selu({f}); F.celu({f}); F.softsign({f})
F.tanhshrink({f}); F.hardshrink({f}); F.softshrink({f}); F.threshold({f}, 0.1, {s}); {t} > {u}; {t} <= {s}; {t} == {u}; {t} != {s}
{b} & {b}; {b} | ({t} > 0); ~{b}; {b} ^ {b}; {i} & {k}; {i} | {p}; {i} << {p}; {i} >> {p}; ~{i}; {i} // {p}; {i} % {p}; {b} * {t}; {i} ^ {i}
torch.isnan({f}); {f}.isinf(); torch.isfinite({t}); torch.nan_to_num({f}); torch.nan_to_num({f}, 1.0, 2.0, 3.0); torch.signbit({f}.nan_to_num())
torch.logical_and({t}, {u}); torch.logical_not({t}); torch.logical_xor({t}, {u}); torch.fmod({f}, {w}); torch.remainder({f}, {w}); torch.remainder({t}, {s})
torch.hypot({f}, {w}); torch.copysign({f}, {w}.nan_to_num()); torch.div({t}, {s}, rounding_mode="floor"); torch.div({t}, {u}, rounding_mode="trunc"); torch.float_power({t}, 2)
torch.floor_divide({t}, {s}); torch.pow({s}, {f}); torch.pow({f}.abs(), {w}); {t} ** {p}; torch.logaddexp({f}, {w}); torch.xlogy({f}, {w}); torch.heaviside({f}, {w})
torch.special.entr({f}); torch.sinc({f}); {f}.exp2(); {f}.log2(); {f}.log10(); {f}.tan(); {f}.asinh(); {f}.sinh(); {f}.cosh(); {f}.acos(); {f}.logit(0.1)
torch.lgamma({f}); torch.digamma({f}.abs() + 1); torch.erfc({f}); torch.erfinv({f}); torch.deg2rad({f}); {f}.softmax({d}).log(); torch.gcd({i}, {i}); torch.nextafter({f}, {w})
{t}.to({T}); {f}.to({F}); {t}.to(F32); {t}.to(F64); {t}.long(); {t}.bool(); {t}.type_as({t}); {t}.to({T}).to({F}); {f}.to(F16); {f}.to(BF16); {t}.to(torch.uint8); {t}.int()
{t}.masked_fill({b}, {s}); {t}.masked_fill({t} > 0, {k}); torch.square({t}).add(1).to({F}); {t}.clip({k}, {p}); {f}.mul({s}).add({w}); {f}.sub({w}, alpha={s})
"""

REDUCE = """
{t}.sum(); {t}.sum({d}); {t}.sum({d}, keepdim=True); {f}.mean(); {f}.mean({d}); {f}.mean({d}, True); {t}.amax({d}); {t}.amin({d}, True); {t}.max(); {t}.min()
{t}.max({d}); {t}.min({d}, keepdim=True); {t}.max({d}).values; {t}.argmax({d}); {t}.argmin({d}, keepdim=True); {t}.argmax(); {f}.var({d}); {f}.std({d}, correction=0)
{f}.var(); {f}.var_mean({d}, keepdim=True); {f}.norm(); {f}.norm(dim={d}); {f}.norm(p=1, dim={d}); {t}.prod({d}); {t}.prod(); {t}.any(); {t}.all({d}); {t}.any({d}, True)
{t}.cumsum({d}); {f}.cumprod({d}); {f}.logsumexp({d}); {f}.softmax({d}); {f}.log_softmax({d}); {t}.cummax({d}); {t}.sum(({d}, {e})); {f}.mean(({d}, {e}), keepdim=True)
torch.count_nonzero({t}); torch.count_nonzero({t}, {d}); {t}.sum({d}, dtype={F}); {f}.nansum({d}); {f}.nanmean(); {f}.median({d}); {t}.median(); {t}.sort({d}); {t}.sort({d}, descending=True)
{t}.argsort({d}, stable=True); {t}.topk(1, {d}); {f}.aminmax(dim={d}); {t}.unique(); torch.linalg.vector_norm({f}, 2, {d}); {t}.logcumsumexp({d}); {f}.softmin({d}); {t}.cummin({d}).indices
F.normalize({f}, dim={d}); {f}.sub({f}.mean({d}, keepdim=True)); {f}.renorm(2, {d}, 1.0); {t}.kthvalue(1, {d}); {t}.mode({d}); torch.linalg.norm({f}); {f}.std_mean({d}); {t}.diff(dim={d}); {t}.amax(); {t}.sum(dim=[]); {f}.mean(dtype={F}); {f}.softmax({d}, dtype={F})
"""

VIEW = """
{t}.unsqueeze({d}); {t}.squeeze(); {t}.squeeze({d}); {m}.transpose({d}, {e}); {m}.t(); {m}.mT; {t}.flatten(); {m}.flatten(0, 1); {t}.reshape(-1); {t}.view(-1); {t}.contiguous()
{t}.reshape({t}.shape); {t}.view({t}.shape); {t}[None]; {t}[..., None]; {t}[0]; {t}[-1]; {t}[..., 0]; {t}[1:]; {t}[:-1]; {t}[::2]; {t}[..., ::2]; {t}[:0]; {t}[..., 1:]
{t}.expand({p}, *{t}.shape); {t}.repeat({p}, *[1] * {t}.dim()); {t}.repeat({p}); {t}.narrow({d}, 0, 1); {t}.select({d}, 0); {t}.chunk(2, {d}); {t}.split(1, {d}); {t}.unbind({d}); {t}.chunk(2, {d})[0]
{t}.split({p}, {d})[-1]; {t}.movedim({d}, {e}); {t}.permute(*reversed(range({t}.dim()))); {t}.flip({d}); {t}.roll({k}, {d}); {t}.diagonal() if {t}.dim() > 1 else {t}; {m}.tril(); {m}.triu({k}); {m}.diagonal(); {t}.diag_embed()
{t}.unfold({d}, 1, 1); {t}.unfold({d}, 2, 1); {t}.clone(); {t}.detach(); {t}.clone(memory_format=torch.contiguous_format); {t}.expand_as({u}); torch.broadcast_to({t}, {u}.shape); {t}.view(*{t}.shape, 1)
{t}.reshape(*{t}.shape[1:], {t}.shape[0]); {t}.view(1, -1); {t}.reshape(-1, 1); {t}.unflatten(0, (-1, 1)); {t}.repeat_interleave({p}, {d}); {t}.repeat_interleave(2); {t}.as_strided({t}.shape, {t}.stride()); {t}.rot90() if {t}.dim() > 1 else {t}
{t}.tile({p}); {t}.swapaxes({d}, {e}); torch.atleast_2d({t}); {t}.ravel(); {t}.view_as({t}); {t}.narrow({d}, {p}, 0); {m}.transpose(0, 1).contiguous(); {m}.transpose(-1, -2).reshape(-1); {t}.tensor_split(2, {d}); {t}.hsplit(1) if {t}.dim() else {t}
{f}.view({T}); {f}.real; torch.view_as_complex({f}[..., None].expand(*{f}.shape, 2).contiguous()).abs(); {t}.permute(*range({t}.dim())); {q}.permute(0, 2, 1, *range(3, {q}.dim())); {t}.positive(); {t}.data
"""

JOIN = """
torch.cat([{t}, {t}], {d}); torch.cat([{t}, {u}], 0); torch.cat([{t}.reshape(-1), {t}.reshape(-1)]); torch.stack([{t}, {t}], {d}); torch.stack([{t}, {u}.expand_as({t})]); torch.cat([{t}[:1], {t}])
torch.cat([{t}, {t}[:0]]); torch.hstack([{t}, {t}]); torch.broadcast_tensors({t}, {u}); torch.meshgrid({t}.reshape(-1), {t}.reshape(-1)[:2], indexing="ij"); torch.cat([{f}, {f}.relu(), -{f}], {d}); torch.vstack([{t}, {t}]); torch.block_diag({t}.reshape(-1)[:3], {t}.reshape(-1)[:2]); torch.cartesian_prod({t}.reshape(-1)[:3], {t}.reshape(-1)[:3])
"""

CREATE = """
torch.zeros_like({t}); torch.ones_like({t}, dtype={F}); torch.full_like({t}, {k}); torch.zeros({t}.shape); torch.ones({t}.shape[:1]); torch.arange({t}.numel()); torch.arange({t}.shape[0] if {t}.dim() else 3, dtype={F})
torch.full({t}.shape, {s}); {t}.new_zeros({t}.shape); {t}.new_full((2, 1), {k}); torch.tensor({s}); torch.tensor([{s}, 2.0, 3.0]); torch.linspace(0, 1, {p}); torch.eye({p}, {t}.numel() % 5 + 1); torch.arange(0, 1, 0.25); torch.scalar_tensor({s}); torch.tensor({n}); torch.full((3,), {n}); {t}.new_ones(()); torch.rand_like({f}); torch.rand({t}.shape); torch.randn(3, {p}); torch.randint(0, 5, {t}.shape); torch.bernoulli({f}.sigmoid()); torch.zeros(0, {p}); torch.randperm({t}.numel()); torch.tril_indices({p}, 3); torch.as_tensor({s}); torch.empty({t}.shape).fill_({s}); torch.zeros({t}.shape, dtype=torch.bool); torch.rand({t}.shape).lt(0.5); torch.arange({t}.numel()).reshape({t}.shape)
"""

INDEX = """
{t}[{i} % max({t}.shape[0], 1)]; {t}[{b}] if {b}.shape == {t}.shape else {t}; {t}[{t} > 0]; {t}.gather({d}, {t}.argsort({d})); {t}.index_select({d}, torch.arange({t}.shape[{d}])); torch.take({t}, {i} % max({t}.numel(), 1)); {t}[[0]]; {t}[..., [0, -1]]
{t}[:, None]; {t}[None, ..., 0]; {f}.index_add({d}, torch.zeros({f}.shape[{d}], dtype=torch.long), {f}); {f}.scatter({d}, {f}.argsort({d}), 1.0); {f}.scatter_add({d}, {f}.argsort({d}) * 0, {f}); F.one_hot({i}.abs() % 4, 4); torch.bincount({i}.abs().reshape(-1) % 5, minlength=6); {t}.nonzero(); {t}.masked_select({t} > 0)
torch.searchsorted({f}.reshape(-1).sort().values, {f}); torch.bucketize({f}, torch.tensor([-1.0, 0.0, 1.0])); F.embedding({i}.abs() % 3, torch.arange(12.0).reshape(3, 4)); F.embedding({i}.abs() % max({m}.shape[0], 1), {m}); {f}.index_put(({i}.reshape(-1) % max({f}.shape[0], 1),), torch.tensor({s}, dtype={f}.dtype)); {f}.index_fill({d}, torch.tensor([0]), {s}); {t}[torch.arange({t}.shape[0]).flip(0)]; {m}[torch.tensor([0, -1]), torch.tensor([0, 0])]; {m}[:, torch.tensor([0, -1])]; {f}.masked_scatter({f} > 0, {f}.flip(0)); {t}.take_along_dim({t}.argsort({d}), {d}); {f}.select_scatter({f}.select({d}, 0) * 2, {d}, 0); {f}.slice_scatter({f}[:1] + 1, 0, 0, 1); {f}.index_copy(0, torch.arange({f}.shape[0]).flip(0), {f}); {f}.scatter_reduce({d}, {f}.argsort({d}) // 2, {f}, "amax"); torch.histc({f}.nan_to_num(), 4, -2, 2); {f}.diagonal_scatter({f}.diagonal() + 1) if {f}.dim() == 2 else {f}; torch.isin({t}, torch.tensor([0, 1])); {t}.argwhere(); torch.repeat_interleave({t}, torch.tensor([1, 2]), 0) if {t}.shape[0] == 2 else {t}
"""

DENSE = """
{m} @ {m}.mT; {m}.mT @ {m}; {m}.matmul({m}.shape[-1] * [[1.0]] and torch.ones({m}.shape[-1], 2, dtype={m}.dtype)); F.linear({f}, torch.linspace(-1, 1, 3 * {f}.shape[-1], dtype={f}.dtype).reshape(3, -1)); torch.addmm({m}.sum(0)[None, :1], {m}.flatten(1), {m}.flatten(1).t()); {q} @ {q}.mT
torch.einsum("...i,...i->...", {f}, {f}); torch.einsum("ij,kj->ik", {m}.flatten(1), {m}.flatten(1)); torch.bmm({q}.flatten(2), {q}.flatten(2).mT); torch.outer({f}.reshape(-1)[:5], {f}.reshape(-1)[:3]); torch.dot({f}.reshape(-1), {f}.reshape(-1)); {m}.flatten(1).mv({m}.flatten(1)[0]); torch.baddbmm({q}.flatten(2) @ {q}.flatten(2).mT, {q}.flatten(2), {q}.flatten(2).mT, beta=0.5); torch.cdist({m}, {m}); torch.kron({m}[:2, :2], {m}[:2, :1]); torch.tensordot({m}, {m}, 1) if {m}.shape[-1] == {m}.shape[0] else {m}; torch.inner({f}, {f}); F.bilinear({f}, {f}, torch.ones(2, {f}.shape[-1], {f}.shape[-1], dtype={f}.dtype)); torch.vander({f}.reshape(-1)[:3]); torch.trace({m}[:, :, *[0] * ({m}.dim() - 2)]); {m}.flatten(1) @ torch.ones({m}[0].numel(), 1, dtype={m}.dtype); torch.linalg.det({m}[..., :2, :2]) if {m}.shape[-1] > 1 < {m}.shape[-2] else {m}; F.scaled_dot_product_attention({q}, {q}, {q}); F.scaled_dot_product_attention({q}[None], {q}[None], {q}[None], is_causal=True); F.cosine_similarity({f}, {w}, dim=-1); F.pairwise_distance({m}, {m}.flip(0)); torch.chain_matmul({m}.flatten(1), {m}.flatten(1).t())
"""

NN = """
F.layer_norm({f}, {f}.shape[-1:]); F.layer_norm({f}, {f}.shape[-1:], torch.linspace(1, 2, {f}.shape[-1], dtype={f}.dtype)); F.rms_norm({f}, {f}.shape[-1:]); F.dropout({f}, 0.5); F.dropout({f}, 0.3, False); F.pad({f}, (1, 0)); F.pad({f}, (1, 2), value={s}); F.pad({f}, (-1, 1)); F.glu(torch.cat([{f}, {f}], -1)); F.mse_loss({f}, {w}); F.l1_loss({f}, {w}, reduction="sum"); F.smooth_l1_loss({f}, {w}); F.huber_loss({f}, {w}, reduction="none")
F.binary_cross_entropy_with_logits({f}, {f}.sigmoid()); F.cross_entropy({m}.flatten(1), torch.zeros({m}.shape[0], dtype=torch.long)); F.cross_entropy({m}.flatten(1), {m}.flatten(1).argmax(1), label_smoothing=0.1); F.nll_loss({m}.flatten(1).log_softmax(1), {m}.flatten(1).argmax(1)); F.kl_div({f}.log_softmax(-1), {f}.softmax(-1), reduction="batchmean"); F.group_norm({q}, 1); F.instance_norm({q}); F.batch_norm({m}, None, None, training=True); F.batch_norm({m}, torch.zeros({m}.shape[1], dtype={m}.dtype), torch.ones({m}.shape[1], dtype={m}.dtype)); F.max_pool1d({q}.flatten(2), 2); F.avg_pool1d({q}.flatten(2), 2, 1); F.adaptive_avg_pool1d({q}.flatten(2), 2); F.adaptive_max_pool1d({q}.flatten(2), 1)
F.conv1d({q}.flatten(2), torch.linspace(-1, 1, 2 * {q}.shape[1] * 2, dtype={q}.dtype).reshape(2, -1, 2), padding=1); F.conv1d({q}.flatten(2), torch.ones(3, {q}.shape[1], 1, dtype={q}.dtype), torch.ones(3, dtype={q}.dtype)); F.conv2d({q}.flatten(2)[:, :, None], torch.linspace(-1, 1, 4 * {q}.shape[1] * 3, dtype={q}.dtype).reshape(4, -1, 1, 3), padding=(0, 1)); F.conv2d({q}.flatten(2)[..., None], torch.ones({q}.shape[1], 1, 2, 1, dtype={q}.dtype), padding=1, groups={q}.shape[1]); F.conv_transpose1d({q}.flatten(2), torch.ones({q}.shape[1], 2, 2, dtype={q}.dtype)); F.max_pool2d({q}, 2); F.avg_pool2d({q}, 2, ceil_mode=True); F.interpolate({q}.flatten(2), scale_factor=2); F.interpolate({q}.flatten(2), size=5, mode="linear"); F.interpolate({q}.flatten(2)[:, :, None], scale_factor=2.0, mode="bilinear"); F.unfold({q}[None], (1, 2)) if {q}.dim() == 3 else {q}; F.pixel_shuffle({q}.expand(4, *{q}.shape[1:]), 2) if {q}.dim() == 3 and {q}.shape[0] == 1 else {q}; F.gumbel_softmax({f}, dim=-1); F.local_response_norm({q}, 2); F.prelu({f}, torch.tensor([0.2], dtype={f}.dtype)); F.rrelu({f}); F.alpha_dropout({f}, 0.2, True); F.feature_dropout({m}, 0.4, True) if hasattr(F, "feature_dropout") else {m}; F.embedding_bag({i}.abs().reshape(1, -1) % 3, torch.arange(12.0).reshape(3, 4)); F.adaptive_avg_pool2d({q}, 1); F.pad({q}, (1, 1), mode="reflect"); F.pad({q}.flatten(2), (1, 1), mode="replicate"); F.cosine_embedding_loss({m}.flatten(1), {m}.flatten(1).flip(0), torch.ones({m}.shape[0])); F.margin_ranking_loss({f}, {w}, torch.ones(())); F.softmax({f}, -1, dtype=F32); F.poisson_nll_loss({f}, {f}.abs()); F.gaussian_nll_loss({f}, {w}, {f}.abs() + 0.1)
"""

IN_PLACE = """
{f}.add_({w}); {t}.mul_({k}); {f}.mul_({w}); {f}.relu_(); {f}.sub_({s}); {f}.div_(2); {f}.exp_(); {f}.tanh_(); {f}.sigmoid_(); {t}.zero_(); {t}.fill_({k}); {f}.clamp_(-1, 1); {f}.copy_({w}); {t}.copy_({t}.flip(0)); {f}.neg_()
{t}[0] = {k}; {f}[0] = {f}[-1]; {f}[..., 0] = {s}; {f}[1:] += 1; {f}[:-1].mul_(2); {f}[{f} > 0] = {s}; {f}.masked_fill_({f} < 0, {s}); {f}.t().add_(1) if {f}.dim() == 2 else {f}.add_(1); {f}.view(-1)[::2].mul_(3); {f}.addcmul_({w}, {w}); {t}.add_({k}); {f} += {w}; {t} *= {k}; {f}.squeeze().add_(1)
{f}.unsqueeze(0).mul_(2); {f}.lerp_({w}, 0.5); {f}.select({d}, 0).zero_(); {f}.transpose({d}, {e}).add_(1); {f}.index_fill_({d}, torch.tensor([0]), {s}); {f}.scatter_({d}, {f}.argsort({d}), 0.5); {f}.unsqueeze_(0); {f}.squeeze_(); {f}.t_() if {f}.dim() < 3 else {f}.add_(1); {f}.detach().add_(1); {f}.uniform_(); {f}.normal_(); {f}.cumsum_({d}); {f}.floor_(); {f}.round_(); {f}.sqrt_(); {f}.pow_(2); {f}.where({f} > 0, {f}.sin_()); {t}[:, 0] = {k}; {t}[..., :1] = {t}[..., -1:]; {f}.narrow({d}, 0, 1).copy_({f}.narrow({d}, 0, 1) * 2); F.relu({f}, inplace=True); F.dropout({f}, 0.5, inplace=True); {f}.diagonal().fill_({s}); {f}.index_add_(0, torch.zeros(1, dtype=torch.long), {f}[:1]); torch.add({f}, 1, out={f}); torch.sin({f}, out={f}); torch.mul({f}, {w}, out=torch.empty(0)); {f}.set_({f}.clone()) if False else {f}.add_(0); {f}.swapaxes(0, -1).mul_({s}); {f}.data.add_(1); {f}.requires_grad_({B}) if False else {f}.mul_(1); {f}[[0, -1]] = {s}; {f}[torch.tensor([0])] += 1; {i}.add_(1); {b}.logical_not_(); {f}.expm1_(); {f}.index_put_((torch.tensor([0]),), {f}[-1:], accumulate=True); {f}.view(1, -1).add_({s}); {f}.resize_as_({f}); {f}.clamp_min_({s})
"""

NUMBERS = """
{t}.sum() * {n}; {t} + {n}; {t} * ({n} + {t}.dim()); {t}[: {n} % 3 + 1]; {f} * ({t}.shape[0] if {t}.dim() else 1); {t}.expand({n} % 3 + 1, *{t}.shape); {f} / {t}.numel(); {f} * ({t}.numel() ** 0.5); {t}.reshape({t}.numel()); torch.arange({n} % 7); torch.zeros({n} % 4, {t}.numel()); {t} * float({n}); {t}.roll({n}, {d}); F.pad({f}, ({n} % 3, 1)); {t}.repeat({n} % 3, *[1] * {t}.dim()); {f} * ({n} / 3); {f}.mul({n}) if {n} > 3 else {f}.add({n}); {t}.sum() + {n} // 2; {t}.view({t}.shape[0], -1); {t}.narrow({d}, {t}.shape[{d}] // 2, 1); {t}[{t}.shape[0] // 2 :]; {t}.split({t}.shape[0] // 2 + 1)[0]; {f}.softmax({d}) * {t}.size({d}); torch.full(({n} % 5, 2), {n}); {f} * ({t}.shape[0] > 2); {t}.unflatten(0, ({t}.shape[0], 1)); {t}.select({d}, {n} % max({t}.shape[{d}], 1)); torch.linspace(0, {n}, {t}.numel()); {t}.chunk({n} % 3 + 1, {d})[0]; {f}.clamp(max={n}); max({t}.shape) * {f} if {t}.dim() else {f}; {t}.new_zeros({n} % 3 + 1, 2)
"""

MODULES = """
nn.Linear({f}.shape[-1], {p}) | {f}; nn.Linear({f}.shape[-1], {f}.shape[-1], bias=False) | {f}; nn.LayerNorm({f}.shape[-1]) | {f}; nn.BatchNorm1d({q}.shape[1]) | {q}.flatten(2); nn.BatchNorm1d({m}.shape[1]) | {m}.flatten(1)[:, : {m}.shape[1]]; nn.Conv1d({q}.shape[1], 3, 2, padding=1) | {q}.flatten(2); nn.Conv2d({q}.shape[1], 4, (1, 3), padding=(0, 1)) | {q}.flatten(2)[:, :, None]; nn.GroupNorm(1, {q}.shape[1]) | {q}; nn.Embedding(5, {p}) | {i}.abs() % 5; nn.GELU() | {f}; nn.Dropout(0.4) | {f}
nn.Sequential(nn.Linear({f}.shape[-1], 4), nn.ReLU(), nn.Linear(4, {p})) | {f}; nn.GRU({m}.shape[-1], 3, batch_first=True) | {m}.reshape(1, -1, {m}.shape[-1]); nn.LSTM({m}.shape[-1], 2) | {m}.reshape(-1, 1, {m}.shape[-1]); nn.MultiheadAttention({m}.shape[-1], 1, batch_first=True) | *(3 * [{m}.reshape(1, -1, {m}.shape[-1])]); nn.PReLU() | {f}; nn.RMSNorm({f}.shape[-1]) | {f}; nn.Conv2d({q}.shape[1], {q}.shape[1], (3, 1), padding=(1, 0), groups={q}.shape[1]) | {q}.flatten(2)[..., None]; nn.ConvTranspose1d({q}.shape[1], 2, 2, stride=2) | {q}.flatten(2); nn.Softmax(-1) | {f}; nn.Bilinear({f}.shape[-1], {f}.shape[-1], 2) | {f}, {f}; nn.InstanceNorm1d({q}.shape[1], affine=True) | {q}.flatten(2); nn.Flatten() | {m}; nn.TransformerEncoderLayer({m}.shape[-1], 1, 4, batch_first=True) | {m}.reshape(1, -1, {m}.shape[-1]); nn.BatchNorm2d({q}.shape[1]) | {q}.flatten(2)[..., None]; nn.EmbeddingBag(5, 2) | ({i}.abs() % 5).reshape(1, -1); nn.Hardswish() | {f}; nn.SiLU(inplace=True) | {f} + 0; nn.ReLU(inplace=True) | {f}; nn.RNN({m}.shape[-1], 3) | {m}.reshape(-1, 1, {m}.shape[-1]); nn.MaxPool1d(2, return_indices=True) | {q}.flatten(2); nn.Fold((1, 2), (1, 1)) | {m}.reshape(1, -1, 2)
"""


def rows(text):
    return [row.strip() for line in text.strip().splitlines() for row in line.split("; ") if row.strip()]


TABLE = {
    "pointwise": (rows(POINTWISE), 34),
    "reduce": (rows(REDUCE), 14),
    "view": (rows(VIEW), 16),
    "join": (rows(JOIN), 4),
    "create": (rows(CREATE), 5),
    "index": (rows(INDEX), 5),
    "dense": (rows(DENSE), 4),
    "nn": (rows(NN), 7),
    "in_place": (rows(IN_PLACE), 9),
    "numbers": (rows(NUMBERS), 4),
    "modules": (rows(MODULES), 3),
}
