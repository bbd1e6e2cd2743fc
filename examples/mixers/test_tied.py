import torch
from tied import TiedAttention

from zoo.building_blocks import ForwardPass, LayerSite


def test_each_query_mixes_the_keys_up_to_its_own() -> None:
    spec = TiedAttention(heads=2).resolve(12)
    layer = spec.build(LayerSite(d_model=12, layer=0, n_layers=1)).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # a model would fill them by their roles
    x = torch.randn(1, 7, 12, dtype=torch.float64)
    with torch.no_grad():
        found = layer(x, ForwardPass.of(torch.zeros(1, 7)))[0]
        q, k = ((part(x)[0]).view(7, 2, 6) for part in (layer.q, layer.k))
        for t in range(7):
            heads = []
            for h in range(2):
                weights = torch.softmax(k[: t + 1, h] @ q[t, h] / 6**0.5, 0)
                heads.append(weights @ k[: t + 1, h])
            torch.testing.assert_close(found[t], layer.o(torch.cat(heads)), rtol=1e-6, atol=1e-6)
