"""Print what lightning-ir's unchanged MVR does, which shows the statements of docs/explanation/crosscheck.md."""

import torch
from lightning_ir import BiEncoderModule, BiEncoderOutput, ContrastiveLocalLoss, InBatchCrossEntropy
from peer import as_batch, load_peer, quiet


def print_probes(folder, num_views, texts):
    """Print what the package's own tokenizer, losses and training step make of the texts."""
    with quiet():
        module = BiEncoderModule(model=load_peer(folder, num_views))
    inputs = module.prepare_input(texts.questions, [document.text for document in texts.documents], None)
    for name, encoding in inputs.items():
        tokens = module.tokenizer.convert_ids_to_tokens(encoding["input_ids"][0])
        print(f"its own {name}: {' '.join(tokens[: num_views + 4])} ...; keys: {', '.join(encoding)}")
    similarity = torch.linspace(0, 1, 2 * num_views).view(2, num_views)
    losses = [_local_loss(similarity, temperature) for temperature in (1.0, 0.3)]
    print(f"its local loss of the same scores at temperature 1 and 0.3: {losses[0]:.6f} and {losses[1]:.6f}")
    print(f"its local loss of the scores divided by 0.3: {_local_loss(similarity / 0.3, 0.3):.6f}")
    print(
        f"its in-batch loss takes a temperature: {'temperature' in InBatchCrossEntropy.__init__.__code__.co_varnames}"
    )
    with torch.no_grad():
        output = module.forward(as_batch(texts))
    print(f"its local loss on its model's similarity, {tuple(output.similarity.shape)}: {_failure(output)}")


def _local_loss(similarity, temperature):
    return float(ContrastiveLocalLoss(temperature).compute_loss(BiEncoderOutput(similarity=similarity)))


def _failure(output):
    try:
        return f"{float(ContrastiveLocalLoss().compute_loss(output)):.6f}"
    except RuntimeError as error:
        return f"RuntimeError: {error}"
