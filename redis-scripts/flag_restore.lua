-- Writes a flag rule back if the store has none or an older one. A value that is no rule stays for inspection; setting
-- the flag again overwrites it.
--
-- KEYS[1] rule     flags:virtual-queue.enabled
-- KEYS[2] audit    flags:audit (stream)
-- ARGV[1] lost     the rule the replica knows, JSON with version
-- ARGV[2] who      restore
-- ARGV[3] why      reason
-- ARGV[4] kept     audit entries kept, exactly
-- ARGV[5] longest  bytes of a rule the audit keeps in full
-- ARGV[6] channel  flags:changed
--
-- Reply: the rule now stored, JSON: ours, or one of the same or a newer version; then the error if the audit of ours
-- failed, or ''.
--
-- Example: nothing is stored.
--   EVALSHA … 2 flags:virtual-queue.enabled flags:audit '{"version":7,…}' restore 'the store had lost version 7'
--     10000 16384 flags:changed
--   → '{"version":7,…}' ''
assert(#KEYS == 2 and #ARGV == 6, 'flag_restore takes 2 KEYS and 6 ARGV')
local rule_key, audit_key = KEYS[1], KEYS[2]
local lost, who, why = ARGV[1], ARGV[2], ARGV[3]
local kept, longest, channel = ARGV[4], tonumber(ARGV[5]), ARGV[6]

local version = flag_version(lost)
assert(version, 'flag_restore: the rule to restore has no version')

local stored = redis.call('GET', rule_key)
if stored then
  local stored_version = flag_version(stored)
  if not stored_version or stored_version >= version then
    return { stored, '' }
  end
end

-- The order and the pcall are as in flag_put.
redis.call('SET', rule_key, lost)
local not_audited = flag_audit(audit_key, kept, longest, flag_now(), who, stored or '', lost, why)
redis.pcall('PUBLISH', channel, string.format('%.0f', version))
return { lost, not_audited }
