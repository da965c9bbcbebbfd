#pragma once

#include <string>
#include <vector>

#include "src/data/loading/training_examples.h"

namespace tessera {

/// Returns the captions of training samples as lines for the terminal.
std::string to_text(const std::vector<TrainingExample>& examples);

/// Returns a self-contained HTML page that shows the predictions of the dry run (`numbers`, lines of text) and, below them, the
/// augmented images and the texts of training samples.
std::string example_page(const std::vector<TrainingExample>& examples, const std::string& title,
                         const std::string& data, const std::string& numbers = "");

}  // namespace tessera
