#include "tools/pickle_opcode_names.h"

#include <algorithm>
#include <array>

namespace cistern::pickle {
namespace {

struct Opcode {
  char code;
  std::string_view name;
};

constexpr std::array<Opcode, 68> kOpcodes{{
    {'(', "MARK"},
    {')', "EMPTY_TUPLE"},
    {'.', "STOP"},
    {'0', "POP"},
    {'1', "POP_MARK"},
    {'2', "DUP"},
    {'B', "BINBYTES"},
    {'C', "SHORT_BINBYTES"},
    {'F', "FLOAT"},
    {'G', "BINFLOAT"},
    {'I', "INT"},
    {'J', "BININT"},
    {'K', "BININT1"},
    {'L', "LONG"},
    {'M', "BININT2"},
    {'N', "NONE"},
    {'P', "PERSID"},
    {'Q', "BINPERSID"},
    {'R', "REDUCE"},
    {'S', "STRING"},
    {'T', "BINSTRING"},
    {'U', "SHORT_BINSTRING"},
    {'V', "UNICODE"},
    {'X', "BINUNICODE"},
    {']', "EMPTY_LIST"},
    {'a', "APPEND"},
    {'b', "BUILD"},
    {'c', "GLOBAL"},
    {'d', "DICT"},
    {'e', "APPENDS"},
    {'g', "GET"},
    {'h', "BINGET"},
    {'i', "INST"},
    {'j', "LONG_BINGET"},
    {'l', "LIST"},
    {'o', "OBJ"},
    {'p', "PUT"},
    {'q', "BINPUT"},
    {'r', "LONG_BINPUT"},
    {'s', "SETITEM"},
    {'t', "TUPLE"},
    {'u', "SETITEMS"},
    {'}', "EMPTY_DICT"},
    {'\x80', "PROTO"},
    {'\x81', "NEWOBJ"},
    {'\x82', "EXT1"},
    {'\x83', "EXT2"},
    {'\x84', "EXT4"},
    {'\x85', "TUPLE1"},
    {'\x86', "TUPLE2"},
    {'\x87', "TUPLE3"},
    {'\x88', "NEWTRUE"},
    {'\x89', "NEWFALSE"},
    {'\x8a', "LONG1"},
    {'\x8b', "LONG4"},
    {'\x8c', "SHORT_BINUNICODE"},
    {'\x8d', "BINUNICODE8"},
    {'\x8e', "BINBYTES8"},
    {'\x8f', "EMPTY_SET"},
    {'\x90', "ADDITEMS"},
    {'\x91', "FROZENSET"},
    {'\x92', "NEWOBJ_EX"},
    {'\x93', "STACK_GLOBAL"},
    {'\x94', "MEMOIZE"},
    {'\x95', "FRAME"},
    {'\x96', "BYTEARRAY8"},
    {'\x97', "NEXT_BUFFER"},
    {'\x98', "READONLY_BUFFER"},
}};

}  // namespace

std::string_view opcode_name(char opcode) {
  const auto* found = std::ranges::find(kOpcodes, opcode, &Opcode::code);
  return found == kOpcodes.end() ? std::string_view() : found->name;
}

}  // namespace cistern::pickle
