// The kinds of datasets, by name: values of training.dataset.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/text_source.h"

namespace titan::data {

std::vector<std::string> dataset_names();

// Opens the dataset kind `name` (upper and lower case are the same) at `path`. Throws DataError on an unknown name,
// listing the known ones, and what the kind itself throws.
std::unique_ptr<TextSource> open_dataset(const std::string& name, const std::filesystem::path& path);

}  // namespace titan::data
