#pragma once

#include <memory>

#include "src/data/features/feature_folder.h"
#include <tessera/training/config/config.h>

namespace tessera {

struct TrainingRun;

/// Encodes each image of data.train once, with the preprocessing of evaluation and the run's initial image encoder. Writes the
/// features that the objective and the read-out need into data.features.folder. With data.features.texts, also writes the vector of each
/// text of each sample, which the text tower's encoder and read-out give, into its subfolder `texts`. With data.features.vectors, the
/// vectors come from files. Returns the manifest of the images. Throws UserError if data.features is not set, if the encoder is not
/// frozen, if a file has no vector for an image or text, or if the data cannot be read.
FeatureManifest write_image_features(const Config& config);

/// Opens the features that data.features names, for a run whose model is built and whose frozen parameters are known. Throws UserError if
/// the encoder is not frozen, if the features were made with other settings, or if tensors are missing.
std::shared_ptr<const FeatureFolder> open_image_features(const Config& config, const TrainingRun& run);

/// Does the same for the vectors of texts. Throws UserError also if the text tower's read-out is not frozen, or if the objective needs
/// tokens of texts.
std::shared_ptr<const FeatureFolder> open_text_features(const Config& config, const TrainingRun& run);

/// Returns a digest of the names, types, shapes and values of a module's parameters and buffers.
std::string weights_digest(const torch::nn::Module& module);

/// Compares the weights of the loaded encoders with those that produced the run's features. Throws UserError if they differ; does
/// nothing for a run without features.
void check_feature_weights(const TrainingRun& run);

}  // namespace tessera
