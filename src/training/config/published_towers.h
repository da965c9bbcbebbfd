#pragma once

#include <tessera/config/node.h>
#include <tessera/models/foreign/tensor_rule.h>
#include <tessera/models/model_file.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// Returns the tree with `model.image.from` and `model.text.from` replaced by the settings of the towers in those published folders.
/// Settings in the tree itself take precedence. Also takes the folders' preprocessing and, if the tree has none, their tokenizer, and
/// sets `start.image` and `start.text` to the folders. Throws UserError if a folder is not a published model or lacks the tower.
config::Node with_published_towers(config::Node tree);

/// Returns the tensors of a published folder under Tessera's names, restricted to those in a model's state `own`.
NamedTensors published_tensors(const std::string& folder, const NamedTensors& own);

/// Returns the parts of the published folder that checkpoints carry along, so that the trained model can be exported for the folder's
/// library again: its files, and the tensors that have no place in our model. If the run starts from two folders, only the text
/// folder's tokenizer; null if it starts from no published folder.
std::shared_ptr<const PublishedParts> start_parts(const StartSettings& start);

}  // namespace tessera
