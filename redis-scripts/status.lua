-- status.lua: people poll. A waiting person keeps the place and learns how many are ahead. An admitted person gets the
-- pass and leaves the queue. A live pass is given again. If nobody is found, nothing slides.
--
-- KEYS   as includes/target.lua
-- ARGV   1..8 as includes/target.lua; 9.. the user ids, each once
-- Reply  now, next_allowed, batch, tick_ms, paused, moving, expired, then for each person three integers:
--        0 0 0 (not in the queue) | 1 number ahead | 2 expiry wait_ms (just issued) | 3 expiry 0 (live pass)
-- Example  7 (number 1, admitted) and 8 (number 101, waiting) poll at 1002500 with the mark at 100, passes of 300 s:
--          1002500 1004000 100 2000 0 1 0   2 1302 2500   1 101 0
assert(#ARGV >= 9, 'status takes at least one user')

local alive = redis.call('EXISTS', seq) == 1
local people, found = {}, false
for i = 9, #ARGV do
  local code, a, b = NOT_IN_QUEUE, 0, 0
  if alive then
    code, a, b = visit(ARGV[i])
  end
  found = found or code ~= NOT_IN_QUEUE
  people[#people + 1], people[#people + 2], people[#people + 3] = code, a, b
end
if found then
  slide()
end

local reply = reply_head()
for i = 1, #people do
  reply[7 + i] = people[i]
end
return reply
