-- direct.lua: adds direct passes to the books of a target. Keeps nothing for a target without a queue.
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua; 9 how many
-- Reply  now, alive
-- Example  three direct passes of a live target: 1000000 1
assert(#ARGV == 9, 'direct takes a number of passes')
local alive = redis.call('EXISTS', seq)
if alive == 1 then
  redis.call('HINCRBY', stats, 'direct', ARGV[9])
end
return { now, alive }
