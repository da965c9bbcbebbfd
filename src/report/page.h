#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace tessera::report {

/// Returns a self-contained HTML page for light and dark mode that shows the data: configs/page.html with the data and the plotting library
/// in it. `data` has a "title" and a "kind": "run" (RunPage), "evaluation" (evaluation_page()), "comparison" (comparison_page()) or
/// "cards", whose "sections" are [{"title", "note", "cards"}] and whose "facts" are [[name, value]]; src/report/cards.h describes cards.
/// Throws UserError if the template is missing.
std::string page(const nlohmann::json& data);

}  // namespace tessera::report
