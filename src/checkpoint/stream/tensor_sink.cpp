#include "checkpoint/stream/tensor_sink.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/fs.h"
#include "base/run_layout.h"
#include "checkpoint/dcp/commit.h"
#include "checkpoint/dcp/metadata.h"
#include "checkpoint/dcp/save_id.h"
#include "checkpoint/format/archive.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/torch_archive.h"
#include "checkpoint/hugging_face/hugging_face.h"
#include "checkpoint/io/checksums.h"
#include "checkpoint/io/discard.h"

namespace titan::checkpoint {
namespace fs = std::filesystem;
namespace {

// A folder under its temporary name, removed unless it is put in place.
class PendingFolder {
 public:
  explicit PendingFolder(const fs::path& target) : target_(target), path_(temporary_folder(target)) {
    if (!target.parent_path().empty()) fs::create_directories(target.parent_path());
    free_name(path_);
    fs::create_directory(path_);
  }
  ~PendingFolder() {
    std::error_code ignored;
    if (!done_) fs::remove_all(path_, ignored);
  }
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;

  const fs::path& path() const { return path_; }
  const fs::path& target() const { return target_; }
  void put_in_place() {
    fsync_folder(path_);
    checkpoint::put_in_place(target_);
    done_ = true;
  }

 private:
  fs::path target_;
  fs::path path_;
  bool done_ = false;
};

// Checks that tensors are written in order and completely.
class CheckedSink : public TensorSink {
 public:
  explicit CheckedSink(std::vector<TensorInfo> tensors) : tensors_(std::move(tensors)) {}

  void begin(const TensorInfo& tensor) final {
    TITAN_CHECK(next_ < tensors_.size() && tensors_[next_].name == tensor.name, tensor.name + " is not due");
    missing_ = tensor.rows() * tensor.elements_per_row();
    begin_tensor(next_);
  }
  void append(const at::Tensor& rows) final {
    const at::Tensor block = rows.contiguous();
    missing_ -= block.numel();
    TITAN_CHECK(missing_ >= 0 && block.scalar_type() == tensors_[next_].dtype, tensors_[next_].name + ": wrong rows");
    append_bytes(block.const_data_ptr(), block.nbytes());
  }
  void end() final {
    TITAN_CHECK(missing_ == 0, tensors_[next_].name + " is not complete");
    end_tensor(next_++);
  }
  std::uint64_t finish() final {
    TITAN_CHECK(next_ == tensors_.size(), "not all tensors were written");
    return put_in_place();
  }

 protected:
  virtual void begin_tensor(std::size_t index) = 0;
  virtual void append_bytes(const void* data, std::size_t size) = 0;
  virtual void end_tensor(std::size_t index) = 0;
  virtual std::uint64_t put_in_place() = 0;

  std::vector<TensorInfo> tensors_;

 private:
  std::size_t next_ = 0;
  std::int64_t missing_ = 0;
};

class DcpSink : public CheckedSink {
 public:
  DcpSink(const fs::path& folder, std::vector<TensorInfo> tensors, SmallFiles small_files)
      : CheckedSink(std::move(tensors)),
        small_files_(std::move(small_files)),
        folder_(folder),
        file_(folder_.path() / kDataFile) {}

 protected:
  void begin_tensor(std::size_t index) override {
    begin_ = file_.position();
    archive_.emplace(file_, tensors_[index].dtype, tensors_[index].shape);
  }
  void append_bytes(const void* data, std::size_t size) override { archive_->append(data, size); }
  void end_tensor(std::size_t index) override {
    const TensorInfo& tensor = tensors_[index];
    const std::uint64_t length = archive_->finish();
    metadata_.order.push_back(tensor.name);
    metadata_.paths[tensor.name] = {tensor.name};
    metadata_.entries[tensor.name] =
        TensorEntry{tensor.dtype,
                    tensor.shape,
                    {{std::vector<std::int64_t>(tensor.shape.size(), 0), tensor.shape, {kDataFile, begin_, length}}}};
    order_.emplace_back(tensor.name, 0);
  }
  std::uint64_t put_in_place() override {
    Checksums checksums{new_save_id(), {{kDataFile, {file_.position(), file_.crc()}}}};
    file_.finish();
    for (const auto& [name, content] : small_files_) {
      write_file_atomically(folder_.path() / name, content);
      checksums.files[name] = checksum_of(content);
    }
    const std::string bytes = encode_metadata(metadata_, order_, folder_.target(), checksums.save_id);
    checksums.files[layout::kMetadataFile] = checksum_of(bytes);
    write_checksums(folder_.path(), checksums);
    write_file_atomically(folder_.path() / layout::kMetadataFile, bytes);
    folder_.put_in_place();
    return file_.position() + bytes.size();
  }

 private:
  static constexpr const char* kDataFile = "__0_0.distcp";

  SmallFiles small_files_;
  PendingFolder folder_;
  OutputFile file_;
  std::optional<TensorArchiveWriter> archive_;
  std::uint64_t begin_ = 0;
  Metadata metadata_;
  StorageOrder order_;
};

class SafetensorsSink : public CheckedSink {
 public:
  SafetensorsSink(const fs::path& folder, std::vector<TensorInfo> tensors, SmallFiles small_files,
                  std::uint64_t file_bytes)
      : CheckedSink(std::move(tensors)), folder_(folder), small_files_(std::move(small_files)) {
    std::vector<SafetensorsEntry> entries;
    for (const TensorInfo& tensor : tensors_) entries.push_back({tensor.name, tensor.dtype, tensor.shape});
    const bool are_adapters = small_files_.contains(layout::kAdapterConfig);
    files_ = are_adapters ? lay_out_adapter_file(std::move(entries)) : lay_out_files(std::move(entries), file_bytes);
  }

 protected:
  void begin_tensor(std::size_t) override {
    if (out_) return;
    out_.emplace(folder_.path() / files_[file_].name);
    out_->append(files_[file_].header.data(), files_[file_].header.size());
    left_ = files_[file_].entries.size();
  }
  void append_bytes(const void* data, std::size_t size) override { out_->append(data, size); }
  void end_tensor(std::size_t) override {
    if (--left_ > 0) return;
    checksums_.files[files_[file_].name] = {out_->position(), out_->crc()};
    out_->finish();
    out_.reset();
    ++file_;
  }
  std::uint64_t put_in_place() override {
    const std::uint64_t bytes = write_hugging_face_index(folder_.path(), files_, small_files_, std::move(checksums_));
    folder_.put_in_place();
    return bytes;
  }

 private:
  PendingFolder folder_;
  SmallFiles small_files_;
  std::vector<SafetensorsFile> files_;
  std::size_t file_ = 0;  // index of the one being written
  std::size_t left_ = 0;  // number of its tensors still to come
  std::optional<OutputFile> out_;
  Checksums checksums_;
};

class TorchSink : public CheckedSink {
 public:
  TorchSink(fs::path file, std::vector<TensorInfo> tensors)
      : CheckedSink(std::move(tensors)), target_(std::move(file)), temporary_(target_.string() + ".tmp") {
    if (!target_.parent_path().empty()) fs::create_directories(target_.parent_path());
    file_.emplace(temporary_);
    std::vector<std::pair<std::string, TensorDescription>> described;
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      described.emplace_back(tensors_[i].name,
                             describe_contiguous(tensors_[i].dtype, tensors_[i].shape, std::to_string(i)));
    archive_.emplace(*file_, pickle_state_dict(described));
  }
  ~TorchSink() override {
    std::error_code ignored;
    if (!done_) fs::remove(temporary_, ignored);
  }

 protected:
  void begin_tensor(std::size_t index) override {
    const TensorInfo& tensor = tensors_[index];
    const auto numel = static_cast<std::uint64_t>(tensor.rows() * tensor.elements_per_row());
    archive_->begin_storage(std::to_string(index), numel * c10::elementSize(tensor.dtype));
  }
  void append_bytes(const void* data, std::size_t size) override { archive_->append(data, size); }
  void end_tensor(std::size_t) override { archive_->end_storage(); }
  std::uint64_t put_in_place() override {
    const std::uint64_t bytes = archive_->finish();
    file_->finish();
    fs::rename(temporary_, target_);
    fsync_folder(target_.parent_path().empty() ? fs::path(".") : target_.parent_path());
    done_ = true;
    return bytes;
  }

 private:
  fs::path target_;
  fs::path temporary_;
  std::optional<OutputFile> file_;
  std::optional<TorchArchiveWriter> archive_;
  bool done_ = false;
};

}  // namespace

std::unique_ptr<TensorSink> make_dcp_sink(const fs::path& folder, std::vector<TensorInfo> tensors,
                                          SmallFiles small_files) {
  return std::make_unique<DcpSink>(folder, std::move(tensors), std::move(small_files));
}

std::unique_ptr<TensorSink> make_safetensors_sink(const fs::path& folder, std::vector<TensorInfo> tensors,
                                                  SmallFiles small_files, std::uint64_t file_bytes) {
  return std::make_unique<SafetensorsSink>(folder, std::move(tensors), std::move(small_files), file_bytes);
}

std::unique_ptr<TensorSink> make_torch_sink(const fs::path& file, std::vector<TensorInfo> tensors) {
  return std::make_unique<TorchSink>(file, std::move(tensors));
}

}  // namespace titan::checkpoint
