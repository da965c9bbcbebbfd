#pragma once

#include <memory>

#include <tessera/data/features/feature_folder.h>
#include <tessera/training/config/config.h>

namespace tessera {

struct TrainingRun;

/// Encodes each picture of data.train once, as evaluation sees it, with the image encoder of the run's initial weights,
/// and writes what the objective and the read-out need of that into data.features.folder. Throws UserError: no such
/// setting, an encoder that would not stay as it is, or data that cannot be read.
FeatureManifest write_image_features(const Config& config);

/// The features that data.features names, for a run whose model is built and whose frozen parameters are known. Throws
/// UserError saying what does not fit: an encoder that is trained, features of other settings, or too few tensors.
std::shared_ptr<const FeatureFolder> open_image_features(const Config& config, const TrainingRun& run);

/// Compares the image encoder's weights, once they are loaded, with those that the run's features are of. Throws
/// UserError; does nothing for a run without features.
void check_feature_weights(const TrainingRun& run);

}  // namespace tessera
