#pragma once

#include <string>
#include <vector>

#include <tessera/report/task_pictures.h>

namespace tessera::report {

/// Draws the tokens as a cloud: tokens with greater weights are larger, and the token with the greatest weight is in the middle. Returns an
/// <svg> element whose viewBox is 300 units wide and 180 units high, or an empty text if there are no tokens. The text takes the color of
/// its surroundings.
std::string token_cloud(const std::vector<TokenExample::Token>& tokens);

/// Draws each image beside its word cloud, two such pairs per row, as a stand-alone SVG file with a white background.
std::string token_sheet(const std::vector<TokenExample>& examples);

}  // namespace tessera::report
