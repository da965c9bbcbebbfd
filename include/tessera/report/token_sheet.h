#pragma once

#include <string>
#include <vector>

#include <tessera/report/task_pictures.h>

namespace tessera::report {

/// The tokens as a cloud: the greater the weight, the larger; the greatest in the middle. An <svg> element of width 300
/// and height 180 in its own units, its text in the color of what surrounds it. Empty without tokens.
std::string token_cloud(const std::vector<TokenExample::Token>& tokens);

/// The pictures, each beside its cloud, two in a row, as a stand-alone SVG picture on white.
std::string token_sheet(const std::vector<TokenExample>& examples);

}  // namespace tessera::report
