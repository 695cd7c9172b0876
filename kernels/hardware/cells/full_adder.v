// Three bits of one weight become one of that weight and one of twice that weight. Synthesis keeps it
// as a cell of its own; what has a constant input, constant_input.v makes of smaller gates.

module full_adder (
    input a,
    input b,
    input c,
    output carry,
    output sum
);
  assign carry = (a & b) | (c & (a | b));
  assign sum = a ^ b ^ c;
endmodule
