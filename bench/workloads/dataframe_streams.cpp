// Dataframe queries on four streams that hand tables over to one another.
//
// Tables: TPC-H's lineitem and orders (Transaction Processing Performance Council, TPC
// Benchmark H, 1.4): fixed columns of 4 and 8 bytes, a text column of at most 44 characters.
// Operators as in published GPU query engines (e.g. He et al., "Relational Query Coprocessing
// on Graphics Processors", TODS 2009): decode, filter (mask, scan, gather), hash join with a
// shared table, sort by radix with a second buffer, aggregate. Ours: the tasks and their mix:
// partitions of 500,000 to 6,000,000 rows; each task runs on one of four streams, one operator
// in turn among the tasks; the joined table is built on stream 0 and read on all; every 8
// partial results are handed to stream 0, which records, concatenates and frees them.

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/workloads/generators.h"
#include "bench/workloads/random.h"
#include "bench/workloads/tensor.h"

namespace cistern {
namespace {

constexpr unsigned kStreams = 4;
constexpr std::uint64_t kPartialsTogether = 8;
constexpr std::uint64_t kWidths[] = {8, 8, 8, 4, 8, 8, 4, 4};  // keys, numbers and dates
constexpr int kRounds = 80, kOperatorsARound = 60, kTasksATable = 48;

// A column with its validity bits; of text, the offsets and the characters.
struct Column {
  Tensor data, validity, characters;
};
using Table = std::vector<Column>;

enum class Operator { decode, filter, join, sort, aggregate };

struct Task {
  Operator next = Operator::decode;
  std::uint64_t rows = 0;
  Table table;
};

class QueryEngine {
 public:
  QueryEngine(std::uint64_t seed, TraceSink& sink) : random_(seed), sink_(sink) {}

  void round() {
    for (int i = 0; i < kOperatorsARound; ++i) {
      if (joined_.empty() || tasks_since_build_ >= kTasksATable) build_joined_table();
      const auto stream = static_cast<unsigned>(random_.below(kStreams));
      run_next(tasks_[stream], stream);
    }
    sink_.step();
  }

  // Ends all tasks, in the order of their streams.
  void drain() {
    for (unsigned stream = 0; stream < kStreams; ++stream) {
      while (tasks_[stream].next != Operator::decode) run_next(tasks_[stream], stream);
    }
    merge_partials();
  }

 private:
  Column column(std::uint64_t rows, std::uint64_t width, unsigned stream) {
    return {Tensor(sink_, rows * width, stream), Tensor(sink_, round_up((rows + 7) / 8, 64), stream), Tensor()};
  }

  Column text_column(std::uint64_t rows, unsigned stream) {
    Column made = column(rows + 1, 4, stream);
    made.characters = Tensor(sink_, rows * random_.between(10, 43), stream);
    return made;
  }

  // A table of `rows` rows with the columns of `like`.
  Table gather(const Table& like, std::uint64_t rows, unsigned stream) {
    Table out;
    for (std::size_t i = 0; i + 1 < like.size(); ++i) out.push_back(column(rows, kWidths[i], stream));
    out.push_back(text_column(rows, stream));
    return out;
  }

  // Built on stream 0 and read by all: the others' use of the old one is already recorded.
  void build_joined_table() {
    joined_.clear();
    joined_rows_ = random_.between(1'000'000, 7'500'000);
    for (const std::uint64_t width : {8, 8, 4}) joined_.push_back(column(joined_rows_, width, 0));
    hash_table_ = Tensor(sink_, joined_rows_ * 2 * 12, 0);
    tasks_since_build_ = 0;
  }

  void run_next(Task& task, unsigned stream) {
    switch (task.next) {
      case Operator::decode:
        return decode(task, stream);
      case Operator::filter:
        return filter(task, stream);
      case Operator::join:
        return join(task, stream);
      case Operator::sort:
        return sort(task, stream);
      case Operator::aggregate:
        return aggregate(task, stream);
    }
  }

  void decode(Task& task, unsigned stream) {
    ++tasks_since_build_;
    task.rows = random_.between(500'000, 6'000'000);
    const std::uint64_t columns = random_.between(3, std::size(kWidths));
    for (std::uint64_t i = 0; i < columns; ++i) {
      const std::uint64_t bytes = task.rows * kWidths[i];
      const Tensor compressed(sink_, bytes * random_.between(30, 90) / 100, stream);
      const Tensor pages(sink_, bytes + 64 * kKiB, stream), headers(sink_, (bytes / kMiB + 1) * 128, stream);
      task.table.push_back(column(task.rows, kWidths[i], stream));
    }
    task.table.push_back(text_column(task.rows, stream));
    task.next = Operator::filter;
  }

  void filter(Task& task, unsigned stream) {
    const std::uint64_t kept = task.rows * random_.between(5, 95) / 100 + 1;
    Tensor mask(sink_, task.rows, stream), positions(sink_, task.rows * 4, stream);
    { const Tensor scan(sink_, task.rows / 256 * 8 + 512, stream); }
    mask.reset();
    task.table = gather(task.table, kept, stream);
    task.rows = kept;
    task.next = random_.chance(60) ? Operator::join : Operator::sort;
  }

  void join(Task& task, unsigned stream) {
    // The driver's order of stream 0 is not this stream's: the shared blocks must wait for it.
    if (stream != 0) {
      hash_table_.record(stream);
      for (const Column& shared : joined_) shared.data.record(stream);
    }
    const std::uint64_t matches = task.rows * random_.between(40, 160) / 100 + 1;
    const Tensor counts(sink_, task.rows * 4, stream), left(sink_, matches * 4, stream);
    const Tensor right(sink_, matches * 4, stream);
    task.table = gather(task.table, matches, stream);
    task.rows = matches;
    task.next = random_.chance(50) ? Operator::sort : Operator::aggregate;
  }

  void sort(Task& task, unsigned stream) {
    Tensor keys(sink_, task.rows * 8, stream), other_keys(sink_, task.rows * 8, stream);
    const Tensor order(sink_, task.rows * 4, stream);
    { const Tensor other_order(sink_, task.rows * 4, stream), histogram(sink_, 64 * kKiB, stream); }
    keys.reset();
    other_keys.reset();
    task.table = gather(task.table, task.rows, stream);
    task.next = Operator::aggregate;
  }

  void aggregate(Task& task, unsigned stream) {
    const std::uint64_t groups = random_.between(10, task.rows / 20 + 10);
    const Tensor slots(sink_, round_up(groups * 2, 256) * 16, stream);
    for (int i = 0; i < 3; ++i) partials_.push_back(column(groups, 8, stream));
    ++partials_waiting_;
    task.table.clear();
    task.rows = 0;
    task.next = Operator::decode;
    if (partials_waiting_ >= kPartialsTogether) merge_partials();
  }

  // Stream 0 reads what the others made, and frees it: each block waits there for stream 0.
  void merge_partials() {
    std::uint64_t bytes = 0;
    for (const Column& partial : partials_) {
      partial.data.record(0);
      partial.validity.record(0);
      bytes += partial.data.bytes();
    }
    const Tensor together(sink_, bytes, 0), keys(sink_, bytes / 3, 0);
    partials_.clear();
    partials_waiting_ = 0;
    const Tensor result(sink_, bytes / 2, 0);
  }

  Random random_;
  TraceSink& sink_;
  std::array<Task, kStreams> tasks_;
  Table joined_;
  Tensor hash_table_;
  std::uint64_t joined_rows_ = 0;
  int tasks_since_build_ = 0;
  std::vector<Column> partials_;
  std::uint64_t partials_waiting_ = 0;
};

}  // namespace

void generate_dataframe_streams(std::uint64_t seed, TraceSink& sink) {
  sink.comment("cistern workload dataframe-streams, seed " + std::to_string(seed) + ": generated, Apache-2.0");
  sink.comment(
      "partitions of TPC-H's lineitem (500,000 to 6,000,000 rows) through decode, filter, join, sort, aggregate");
  sink.comment("four streams; a table shared by all, and partial results handed to stream 0 (record_stream)");
  QueryEngine engine(seed, sink);
  for (int round = 0; round < kRounds; ++round) engine.round();
  engine.drain();
}

}  // namespace cistern
