#pragma once

#include <string>
#include <vector>

#include <tessera/training/config/config.h>

namespace tessera {

/// Changes tiny_yaml to group towers and to both losses of the text group transformer, and then applies `overrides`. Returns the resolved
/// configuration.
Config text_group_config(const std::string& run, const std::vector<std::string>& overrides = {});

/// Returns the configuration of a run in `folder`/`run`. `kind` is either an objective in YAML or the name of a run with its own settings:
/// `dino`, `silc`, `siglip2`, `stair`, `text_group`, `pyramidclip` or `any_views`. An objective gets the towers of tiny_yaml. `pyramidclip`
/// and `any_views` read shards in `folder`/shards; if there are none, this function writes them.
Config system_config(const std::string& kind, const std::string& folder, const std::string& run,
                     const std::vector<std::string>& overrides = {});

/// Returns the configuration of system_config() with a frozen image encoder and the same images in every epoch.
Config frozen_config(const std::string& kind, const std::string& folder, const std::string& run,
                     const std::vector<std::string>& overrides = {});

/// Returns the configuration of frozen_config() with cached image features in `folder`/features.
Config cached_config(const std::string& kind, const std::string& folder, const std::string& run,
                     const std::vector<std::string>& overrides = {});

}  // namespace tessera
