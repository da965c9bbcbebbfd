#pragma once

#include <string>
#include <vector>

#include <tessera/data/loading/training_examples.h>

namespace tessera {

/// The captions of training samples as lines for the terminal.
std::string to_text(const std::vector<TrainingExample>& examples);

/// A self-contained HTML page with the augmented pictures of training samples beside their texts, under what the dry run foretells
/// (`numbers`, lines of text).
std::string example_page(const std::vector<TrainingExample>& examples, const std::string& title,
                         const std::string& data, const std::string& numbers = "");

}  // namespace tessera
