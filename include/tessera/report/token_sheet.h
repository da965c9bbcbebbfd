#pragma once

#include <string>
#include <vector>

#include <tessera/report/task_pictures.h>

namespace tessera::report {

/// Draws the tokens as a cloud: greater weights are larger, the greatest is in the middle. Returns an <svg> element of width 300
/// and height 180 in its own units; text has the surrounding color. Empty without tokens.
std::string token_cloud(const std::vector<TokenExample::Token>& tokens);

/// Draws the images, each next to its cloud, two in a row, as a stand-alone SVG picture on white.
std::string token_sheet(const std::vector<TokenExample>& examples);

}  // namespace tessera::report
