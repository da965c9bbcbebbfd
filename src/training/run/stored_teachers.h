#pragma once

#include <memory>

#include "src/data/features/taught_folder.h"
#include <tessera/batch.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// Whether the objective needs stored embeddings of teachers.
bool is_taught(const Needs& needs);

/// Embeds each image of data.train with the models of data.teachers, once for each of its crops, and each of its texts, and writes the
/// embeddings, of unit length, into data.teachers.folder. The teachers see the crops that training shows, at the size of the student's
/// images, and tokenize texts themselves. Returns the manifest of the images' embeddings. Throws UserError if data.teachers is not set, if
/// the objective needs no such embeddings, if the teachers' widths do not fit it, or if the data or a teacher cannot be read.
FeatureManifest write_teachers(const Config& config);

/// Opens the embeddings that data.teachers names. Throws UserError if the setting is missing, if the embeddings were made by other teachers
/// or with other settings, or if their width is not the one that the objective needs.
std::shared_ptr<const TaughtFolder> open_teachers(const Config& config, const Needs& needs);

}  // namespace tessera
