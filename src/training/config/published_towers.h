#pragma once

#include <tessera/config/node.h>
#include <tessera/models/foreign/tensor_rule.h>
#include <tessera/models/model_file.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// The tree with `model.image.from` and `model.text.from` replaced by the towers of those published folders, beneath what
/// the tree says itself; with their preprocessing and, where none is given, their tokenizer. `start.image` and `start.text`
/// name the folders then. Throws UserError for a folder that is no published model or has no such tower.
config::Node with_published_towers(config::Node tree);

/// The tensors of a published folder under our names, as far as a model's state `own` has them.
NamedTensors published_tensors(const std::string& folder, const NamedTensors& own);

/// What a checkpoint carries of the published folder that a run begins with, so that the trained model can be written for its library
/// again: the folder's files and the tensors that our model has no place for. Of two folders the texts' tokenizer alone; null where
/// there is none.
std::shared_ptr<const PublishedParts> start_parts(const StartSettings& start);

}  // namespace tessera
