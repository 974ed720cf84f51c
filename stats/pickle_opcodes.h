#pragma once

// The opcodes of Python's pickle that a snapshot is made of; their names and meanings are those of
// Python's pickletools.

namespace cistern::pickle {

inline constexpr char kProto = '\x80';
inline constexpr char kFrame = '\x95';
inline constexpr char kStop = '.';

inline constexpr char kNone = 'N';
inline constexpr char kNewTrue = '\x88';
inline constexpr char kNewFalse = '\x89';
inline constexpr char kBinInt = 'J';   // 4 bytes, signed
inline constexpr char kBinInt1 = 'K';  // 1 byte, unsigned
inline constexpr char kBinInt2 = 'M';  // 2 bytes, unsigned
inline constexpr char kLong1 = '\x8a';
inline constexpr char kLong4 = '\x8b';
inline constexpr char kBinFloat = 'G';

inline constexpr char kShortBinUnicode = '\x8c';
inline constexpr char kBinUnicode = 'X';
inline constexpr char kBinUnicode8 = '\x8d';

inline constexpr char kMark = '(';
inline constexpr char kEmptyList = ']';
inline constexpr char kAppend = 'a';
inline constexpr char kAppends = 'e';
inline constexpr char kList = 'l';
inline constexpr char kEmptyDict = '}';
inline constexpr char kSetItem = 's';
inline constexpr char kSetItems = 'u';
inline constexpr char kDict = 'd';
inline constexpr char kEmptyTuple = ')';
inline constexpr char kTuple1 = '\x85';
inline constexpr char kTuple2 = '\x86';
inline constexpr char kTuple3 = '\x87';
inline constexpr char kTuple = 't';

inline constexpr char kMemoize = '\x94';
inline constexpr char kBinPut = 'q';
inline constexpr char kLongBinPut = 'r';
inline constexpr char kBinGet = 'h';
inline constexpr char kLongBinGet = 'j';

}  // namespace cistern::pickle
